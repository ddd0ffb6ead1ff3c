"""The compressions that bodies travel in; announced in x-log-compresstype, never in Content-Encoding."""

from __future__ import annotations

import zlib

import lz4.block
import zstd

from airflow_provider_slshudi.local.faults import ServiceFault

# Speed before size: bytes on loopback cost little.
_LZ4_ACCELERATION = 4
_ZSTD_LEVEL = -5
_ZLIB_LEVEL = 1
_ZLIB = ("deflate", "gzip")
_ANY_HEADER = zlib.MAX_WBITS + 32


def compress(body: memoryview, accepted: str) -> tuple[bytes, str]:
    """`body`, compressed by the first of lz4, zstd and zlib that `accepted` (Accept-Encoding) names, and the name.

    Clients call zlib's format deflate or gzip, and all of them, the PHP SDK's gzuncompress too, read that format.
    """
    names = [name.partition(";")[0].strip().lower() for name in accepted.split(",")]
    if "lz4" in names:
        return lz4.block.compress(body, mode="fast", acceleration=_LZ4_ACCELERATION, store_size=False), "lz4"
    if "zstd" in names:
        return zstd.compress(bytes(body), _ZSTD_LEVEL), "zstd"
    if name := next((name for name in _ZLIB if name in names), ""):
        return zlib.compress(body, _ZLIB_LEVEL), name
    return bytes(body), ""


def decompress(body: bytes, kind: str, size: int) -> bytes:
    """The `size` bytes that `body` holds compressed. Raises InvalidCompressType and PostBodyUncompressError."""
    try:
        raw = _decompress(body, kind.lower(), size)
    except (lz4.block.LZ4BlockError, zlib.error, OSError, ValueError) as error:
        raise _broken(str(error)) from None
    if len(raw) != size:
        raise _broken(f"{len(raw)} bytes where x-log-bodyrawsize says {size}")
    return raw


def _decompress(body: bytes, kind: str, size: int) -> bytes:
    if kind == "":
        return body
    if kind == "lz4":
        return bytes(lz4.block.decompress(body, uncompressed_size=size))
    if kind == "zstd":
        # `zstd` allocates all that the body claims to hold.
        import pyarrow as pa

        return bytes(pa.Codec("zstd").decompress(body, decompressed_size=size, asbytes=True))
    if kind in _ZLIB:
        stream = zlib.decompressobj(_ANY_HEADER)
        raw = stream.decompress(body, size + 1)  # one more than announced, of all that the body would expand to
        if len(raw) <= size and (not stream.eof or stream.unused_data):
            raise ValueError("the stream is cut off, or more follows it")
        return raw
    raise ServiceFault(400, "InvalidCompressType", f"x-log-compresstype {kind} is unsupported.")


def _broken(detail: str) -> ServiceFault:
    return ServiceFault(400, "PostBodyUncompressError", f"The body cannot be decompressed: {detail}")
