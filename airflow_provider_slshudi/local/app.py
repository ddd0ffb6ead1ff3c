"""The service's HTTP interface over a `Store`, as the SDKs speak it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airflow_provider_slshudi.local.call import LARGEST_BODY, Call, Endpoint, number
from airflow_provider_slshudi.local.disturb import disturbed
from airflow_provider_slshudi.local.faultplan import Faults
from airflow_provider_slshudi.local.quotas import Quotas
from airflow_provider_slshudi.local.routes import ROUTES, endpoint_of
from airflow_provider_slshudi.local.service_errors import ServiceFault, too_large
from airflow_provider_slshudi.local.signature import Account, Signed, verify
from airflow_provider_slshudi.local.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """The state behind the application's answers."""

    store: Store
    accounts: Mapping[str, Account]
    quotas: Quotas = field(default_factory=lambda: Quotas(None))
    faults: Faults = field(default_factory=lambda: Faults(None))


class _Put(Convertor[str]):
    """The two words of a put's path, in a place where other paths have a shard's number."""

    regex = "lb|route"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def application(service: Service) -> Starlette:
    """The ASGI application: every request is verified, then answered from `service`."""
    register_url_convertor("put", _Put())
    methods = ["GET", "POST", "PUT", "DELETE"]

    def route(path: str) -> Route:
        return Route(path, partial(_answered, service, path), methods=methods)

    return Starlette(routes=[*map(route, ROUTES), route("/{other:path}")])


async def _answered(service: Service, route: str, request: Request) -> Response:
    request_id = secrets.token_hex(12).upper()
    try:
        call = await _verified(service, request)
        endpoint = endpoint_of(route, request.method, call.query)
        response = await _carried_out(service, endpoint, call)
    except ServiceFault as fault:
        response = JSONResponse({"errorCode": fault.code, "errorMessage": str(fault)}, fault.status)
    except ClientDisconnect:
        return Response()
    except Exception:
        log.exception("%s %s (request %s)", request.method, request.scope["path"], request_id)
        content = {"errorCode": "InternalServerError", "errorMessage": f"see the server's log for request {request_id}"}
        response = JSONResponse(content, 500)
    response.headers["x-log-requestid"] = request_id
    return response


async def _carried_out(service: Service, endpoint: Endpoint, call: Call) -> Response:
    logstore = call.path.get("logstore", "")
    shard = number(call.path.get("shard", ""))
    fault = service.faults.next(endpoint.__name__, call.project, logstore, shard)
    if fault is None:
        return endpoint(call)
    service.faults.record(fault[0], endpoint.__name__, f"{call.project}/{logstore}/{'' if shard is None else shard}")
    return await disturbed(fault, call, partial(endpoint, call))


async def _verified(service: Service, request: Request) -> Call:
    body = await _body(request)
    query, headers = dict(request.query_params), dict(request.headers)
    verify(Signed(request.method, request.scope["path"], query, headers, body), service.accounts)
    # The project is the first label of the host; over a proxy or by IP the URL's own host does not hold it.
    project = headers.get("host", "").split(":")[0].split(".")[0]
    return Call(service.store, service.quotas, project, request.path_params, query, headers, body)


async def _body(request: Request) -> bytes:
    announced = number(request.headers.get("content-length", "0"))
    if announced is None or announced > LARGEST_BODY:
        raise too_large(LARGEST_BODY)
    parts, size = [], 0
    async for part in request.stream():  # the body may be longer than announced, or not announced at all
        parts.append(part)
        size += len(part)
        if size > LARGEST_BODY:
            raise too_large(LARGEST_BODY)
    return b"".join(parts)
