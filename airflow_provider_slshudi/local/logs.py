"""PutLogs and PullLogs of the local server, with the compressions of the service."""

from __future__ import annotations

import zlib

import lz4.block
import zstd
from starlette.responses import JSONResponse, Response

from airflow_provider_slshudi.local.call import LARGEST_BODY, Call, number
from airflow_provider_slshudi.local.service_errors import ServiceFault, invalid_cursor, parameter_invalid, too_large
from airflow_provider_slshudi.local.shardlog import ShardLog
from airflow_provider_slshudi.sls import cursors, wire

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


MOST_GROUPS = 1000
"""The most log groups that one pull may ask for."""


def put_logs(call: Call) -> Response:
    """Append a log group to the shard that owns the query's hash key; without a key to the shards in turn."""
    if call.query.get("processor"):
        raise parameter_invalid("processor is not offered by this local server")
    group, logstore = _group(call), call.logstore()
    shard = logstore.choose(call.query.get("key", "") if call.path.get("way") == "route" else None)
    place = (call.project, call.path["logstore"], shard)
    call.quotas.admit("write", *place)
    logstore.log(shard).append(group)
    call.quotas.count("write", *place, len(group))
    return Response()


def get_cursor(call: Call) -> Response:
    """The cursor of begin, of end, or of a time of receipt in unix seconds."""
    # The PHP SDK asks for begin and end by `mode`.
    log, start = call.logstore().log(call.shard()), call.query.get("from") or call.query.get("mode", "")
    positions = {"begin": log.first, "end": log.end}
    seconds = number(start)
    if start not in positions and seconds is None:
        raise parameter_invalid(f"from {start!r}: expected begin, end or unix seconds")
    return JSONResponse({"cursor": cursors.text(positions[start] if seconds is None else log.at(seconds))})


def get_cursor_time(call: Call) -> Response:
    """When the log group of a cursor was received, in unix seconds."""
    log = call.logstore().log(call.shard())
    return JSONResponse({"cursor_time": log.time(max(_cursor(call, log), log.first))})


def pull_logs(call: Call) -> Response:
    """The log groups from a cursor on."""
    for name in ("query", "processor"):
        if call.query.get(name):
            raise parameter_invalid(f"{name} is not offered by this local server")
    count_text = call.query.get("count") or str(MOST_GROUPS)
    count = number(count_text)
    if count is None or not 1 <= count <= MOST_GROUPS:
        raise parameter_invalid(f"count {count_text!r}: expected 1 to {MOST_GROUPS}")
    log = call.logstore().log(call.shard())
    cursor = _cursor(call, log)
    # The Rust SDK says `endCursor`.
    named = next((name for name in ("end_cursor", "endCursor") if call.query.get(name)), "")
    end = call.cursor(named) if named else log.end
    if end < cursor:
        raise parameter_invalid("end_cursor is before cursor")
    # Not verified with the real service: a read from before the oldest log group begins at it, which shows as a gap.
    begin = min(max(cursor, log.first), end)
    place = (call.project, call.path["logstore"], call.shard())
    call.quotas.admit("read", *place)
    body, groups = log.read(begin, min(end, begin + count), LARGEST_BODY)
    call.quotas.count("read", *place, len(body))
    return pulled(body, groups, begin + groups, call.headers.get("accept-encoding", ""))


def pulled(body: memoryview, groups: int, following: int, accepted: str) -> Response:
    """The answer of a pull that ends before cursor `following`, compressed as `accepted`.

    Args:
        body: the log groups, as protobuf.
        groups: their number.
        following: the cursor after the last of them.
        accepted: the compression that the client takes.
    """
    headers = {
        "x-log-count": str(groups),
        "x-log-bodyrawsize": str(len(body)),
        "x-log-cursor": cursors.text(following),
        "content-type": "application/x-protobuf",
    }
    content, kind = compress(body, accepted if body else "")
    if kind:
        headers["x-log-compresstype"] = kind
    return Response(content, headers=headers)


def _group(call: Call) -> bytes:
    """The LogGroup of a put, decompressed and checked."""
    size = number(call.headers.get("x-log-bodyrawsize", ""))
    if size is None:
        message = "x-log-bodyrawsize does not exist in header when it is necessary."
        raise ServiceFault(400, "MissingBodyRawSize", message)
    if size > LARGEST_BODY:
        raise too_large(LARGEST_BODY)
    group = decompress(call.body, call.headers.get("x-log-compresstype", ""), size)
    try:
        whole = wire.LogGroup.FromString(group).IsInitialized()
    except Exception:  # the decoder's own class differs between protobuf's implementations
        whole = False
    if not whole:
        raise ServiceFault(400, "PostBodyInvalid", "The body cannot be parsed as a LogGroup.")
    return group


def _cursor(call: Call, log: ShardLog) -> int:
    cursor = call.cursor("cursor")
    if cursor > log.end:
        raise invalid_cursor(cursors.text(cursor))
    return cursor
