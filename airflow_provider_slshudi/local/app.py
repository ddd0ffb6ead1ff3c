"""The service's HTTP interface over a `Store`, as the SDKs speak it."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airflow_provider_slshudi.exceptions import CursorError
from airflow_provider_slshudi.local import compression
from airflow_provider_slshudi.local.faults import ServiceFault, parameter_invalid
from airflow_provider_slshudi.local.segment import Segment
from airflow_provider_slshudi.local.signature import Account, Signed, verify
from airflow_provider_slshudi.local.store import Logstore, Store, page
from airflow_provider_slshudi.sls import cursors, wire

log = logging.getLogger(__name__)

LARGEST_BODY = 10 * 1024 * 1024
"""Bytes of a put, and about the bytes that one pull answers with, decompressed."""

MOST_GROUPS = 1000
"""The most log groups that one pull may ask for."""


@dataclass(frozen=True, slots=True)
class Call:
    """A verified request."""

    store: Store
    project: str
    path: Mapping[str, str]
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body, which is a JSON object."""
        try:
            content = json.loads(self.body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise ServiceFault(400, "PostBodyInvalid", "The body is no JSON object.")
        return content

    def logstore(self) -> Logstore:
        """The logstore that the path names."""
        return self.store.logstore(self.project, self.path["logstore"])

    def shard(self) -> int:
        """The shard that the path names."""
        text = self.path["shard"]
        if not (text.isascii() and text.isdigit()):
            raise parameter_invalid(f"invalid shard id {text!r}")
        return int(text)

    def cursor(self, name: str) -> int:
        """The cursor that the query holds under `name`."""
        try:
            return cursors.parse(self.query.get(name, ""))
        except CursorError:
            raise _invalid_cursor(self.query.get(name, "")) from None


Endpoint = Callable[[Call], Response]


def application(store: Store, accounts: Mapping[str, Account]) -> Starlette:
    """The ASGI application: every request is verified against `accounts` and answered from `store`."""

    def route(path: str, **endpoints: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            return await _answered(request, store, accounts, endpoints)

        return Route(path, answer, methods=["GET", "POST", "PUT", "DELETE"])

    return Starlette(
        routes=[
            route("/", GET=_get_root, POST=_create_project, DELETE=_delete_project),
            route("/logstores", GET=_list_logstores, POST=_create_logstore),
            route("/logstores/{logstore}", GET=_get_logstore, PUT=_update_logstore, DELETE=_delete_logstore),
            route("/logstores/{logstore}/shards", GET=_list_shards),
            route("/logstores/{logstore}/shards/lb", POST=_put_in_turn),
            route("/logstores/{logstore}/shards/route", POST=_put_by_key),
            route("/logstores/{logstore}/shards/{shard}", GET=_get_shard, POST=_change_shard),
            route("/{other:path}"),
        ]
    )


async def _answered(
    request: Request, store: Store, accounts: Mapping[str, Account], endpoints: Mapping[str, Endpoint]
) -> Response:
    request_id = secrets.token_hex(12).upper()
    try:
        call = await _verified(request, store, accounts)
        response = _endpoint(request, endpoints)(call)
    except ServiceFault as fault:
        response = JSONResponse({"errorCode": fault.code, "errorMessage": str(fault)}, fault.status)
    except Exception:
        log.exception("%s %s (request %s)", request.method, request.scope["path"], request_id)
        content = {"errorCode": "InternalServerError", "errorMessage": f"see the server's log for request {request_id}"}
        response = JSONResponse(content, 500)
    response.headers["x-log-requestid"] = request_id
    return response


async def _verified(request: Request, store: Store, accounts: Mapping[str, Account]) -> Call:
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > LARGEST_BODY:
        raise _too_large()
    body = await request.body()
    if len(body) > LARGEST_BODY:
        raise _too_large()
    query, headers = dict(request.query_params), dict(request.headers)
    verify(Signed(request.method, request.scope["path"], query, headers, body), accounts)
    # The project is the first label of the host; over a proxy or by IP the URL's own host does not hold it.
    project = headers.get("host", "").split(":")[0].split(".")[0]
    return Call(store, project, request.path_params, query, headers, body)


def _endpoint(request: Request, endpoints: Mapping[str, Endpoint]) -> Endpoint:
    if request.method not in endpoints:
        message = f"{request.method} {request.scope['path']} is not offered by this local server"
        raise ServiceFault(405, "InvalidMethod", message)
    return endpoints[request.method]


def _get_root(call: Call) -> Response:
    if "offset" not in call.query and "size" not in call.query:
        return JSONResponse(call.store.project(call.project))
    pattern = call.query.get("projectName", "")
    projects = call.store.projects()
    return JSONResponse(page(projects, "projects", call.query, lambda item: str(item["projectName"]), pattern))


def _create_project(call: Call) -> Response:
    asked = call.json()
    call.store.create_project(str(asked.get("projectName", call.project)), asked)
    return Response()


def _delete_project(call: Call) -> Response:
    call.store.delete_project(call.project)
    return Response()


def _list_logstores(call: Call) -> Response:
    names = sorted(call.store.logstores(call.project))
    return JSONResponse(page(names, "logstores", call.query, str, call.query.get("logstoreName", "")))


def _create_logstore(call: Call) -> Response:
    call.store.create_logstore(call.project, call.json())
    return Response()


def _get_logstore(call: Call) -> Response:
    return JSONResponse(call.logstore().describe())


def _update_logstore(call: Call) -> Response:
    call.logstore().update(call.json())
    return Response()


def _delete_logstore(call: Call) -> Response:
    call.store.delete_logstore(call.project, call.path["logstore"])
    return Response()


def _list_shards(call: Call) -> Response:
    return JSONResponse([asdict(shard) for shard in call.logstore().shards])


def _change_shard(call: Call) -> Response:
    logstore, shard, action = call.logstore(), call.shard(), call.query.get("action", "")
    if action == "split":
        shards = logstore.split(shard, call.query.get("key", ""))
    elif action == "merge":
        shards = logstore.merge(shard)
    else:
        raise parameter_invalid(f"unknown action {action!r}")
    return JSONResponse([asdict(shard) for shard in shards])


def _put_in_turn(call: Call) -> Response:
    call.logstore().put(_group(call), None)
    return Response()


def _put_by_key(call: Call) -> Response:
    call.logstore().put(_group(call), call.query.get("key", ""))
    return Response()


def _group(call: Call) -> bytes:
    """The LogGroup of a put, decompressed and known to be one."""
    size = call.headers.get("x-log-bodyrawsize", "")
    if not size.isdigit():
        raise ServiceFault(
            400, "MissingBodyRawSize", "x-log-bodyrawsize does not exist in header when it is necessary."
        )
    if int(size) > LARGEST_BODY:
        raise _too_large()
    group = compression.decompress(call.body, call.headers.get("x-log-compresstype", ""), int(size))
    try:
        whole = wire.LogGroup.FromString(group).IsInitialized()
    except Exception:  # the decoder's own class differs between protobuf's implementations
        whole = False
    if not whole:
        raise ServiceFault(400, "PostBodyInvalid", "The body cannot be parsed as a LogGroup.")
    return group


def _get_shard(call: Call) -> Response:
    segment = call.logstore().segment(call.shard())
    kind = call.query.get("type", "")
    if kind == "cursor":
        return JSONResponse({"cursor": cursors.text(_position(call, segment))})
    if kind == "cursor_time":
        cursor = _known(segment, call.cursor("cursor"))
        return JSONResponse({"cursor_time": segment.time(max(cursor, segment.first))})
    if kind in ("log", "logs"):
        return _pull(call, segment)
    raise parameter_invalid(f"unknown type {kind!r}")


def _position(call: Call, segment: Segment) -> int:
    start = call.query.get("from", "")
    if start == "begin":
        return segment.first
    if start == "end":
        return segment.end
    if not (start.isascii() and start.isdigit()):
        raise parameter_invalid(f"from {start!r}: expected begin, end or unix seconds")
    return segment.at(int(start))


def _pull(call: Call, segment: Segment) -> Response:
    for name in ("query", "processor"):
        if call.query.get(name):
            raise parameter_invalid(f"{name} is not offered by this local server")
    count = call.query.get("count", str(MOST_GROUPS))
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST_GROUPS):
        raise parameter_invalid(f"count {count!r}: expected 1 to {MOST_GROUPS}")
    cursor = _known(segment, call.cursor("cursor"))
    end = call.cursor("end_cursor") if call.query.get("end_cursor") else segment.end
    if end < cursor:
        raise parameter_invalid("end_cursor is before cursor")
    # Not verified of the service: reading from before the oldest log group goes on there, which shows as a gap.
    begin = min(max(cursor, segment.first), end)
    body, groups = segment.read(begin, min(end, begin + int(count)), LARGEST_BODY)
    headers = {
        "x-log-count": str(groups),
        "x-log-bodyrawsize": str(len(body)),
        "x-log-cursor": cursors.text(begin + groups),
        "content-type": "application/x-protobuf",
    }
    if body:
        body, kind = compression.compress(body, call.headers.get("accept-encoding", ""))
        if kind:
            headers["x-log-compresstype"] = kind
    return Response(body, headers=headers)


def _known(segment: Segment, cursor: int) -> int:
    if cursor > segment.end:
        raise _invalid_cursor(cursors.text(cursor))
    return cursor


def _invalid_cursor(text: str) -> ServiceFault:
    return ServiceFault(400, "InvalidCursor", f"Cursor {text} is invalid.")


def _too_large() -> ServiceFault:
    return ServiceFault(413, "PostBodyTooLarge", f"Body size must little than {LARGEST_BODY}.")
