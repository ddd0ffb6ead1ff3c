"""The compressions that bodies travel in; announced in x-log-compresstype, never in Content-Encoding."""

from __future__ import annotations

import lz4.block
import zstd

from airflow_provider_slshudi.local.faults import ServiceFault

# Speed before size: bytes on loopback cost little.
_LZ4_ACCELERATION = 4
_ZSTD_LEVEL = -5


def compress(body: memoryview, accepted: str) -> tuple[bytes, str]:
    """`body`, compressed by lz4 or else zstd if `accepted` (Accept-Encoding) names it, and the compression's name."""
    names = [name.partition(";")[0].strip().lower() for name in accepted.split(",")]
    if "lz4" in names:
        return lz4.block.compress(body, mode="fast", acceleration=_LZ4_ACCELERATION, store_size=False), "lz4"
    if "zstd" in names:
        return zstd.compress(bytes(body), _ZSTD_LEVEL), "zstd"
    return bytes(body), ""


def decompress(body: bytes, kind: str, size: int) -> bytes:
    """The `size` bytes that `body` holds compressed. Raises InvalidCompressType and PostBodyUncompressError."""
    try:
        raw = _decompress(body, kind.lower(), size)
    except (lz4.block.LZ4BlockError, OSError, ValueError) as error:
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
        # `zstd` allocates whatever the body claims to hold.
        import pyarrow as pa

        return bytes(pa.Codec("zstd").decompress(body, decompressed_size=size, asbytes=True))
    raise ServiceFault(400, "InvalidCompressType", f"x-log-compresstype {kind} is unsupported.")


def _broken(detail: str) -> ServiceFault:
    return ServiceFault(400, "PostBodyUncompressError", f"The body cannot be decompressed: {detail}")
