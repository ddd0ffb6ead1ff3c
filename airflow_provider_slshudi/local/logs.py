"""Operations on log groups: put, cursors, pull."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from airflow_provider_slshudi.local import compression
from airflow_provider_slshudi.local.call import LARGEST_BODY, Call, number
from airflow_provider_slshudi.local.faults import ServiceFault, invalid_cursor, parameter_invalid, too_large
from airflow_provider_slshudi.local.shardlog import ShardLog
from airflow_provider_slshudi.sls import cursors, wire

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
    asked = call.query.get("count") or str(MOST_GROUPS)
    count = number(asked)
    if count is None or not 1 <= count <= MOST_GROUPS:
        raise parameter_invalid(f"count {asked!r}: expected 1 to {MOST_GROUPS}")
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
    content, kind = compression.compress(body, accepted if body else "")
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
    group = compression.decompress(call.body, call.headers.get("x-log-compresstype", ""), size)
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
