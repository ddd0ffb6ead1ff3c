"""Finds the operation that a request asks for: by path, method and, on some paths, one parameter.

Operations have the names of the official SDK's methods.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_slshudi.local import logs, resources
from airflow_provider_slshudi.local.call import Endpoint
from airflow_provider_slshudi.local.service_errors import ServiceFault, parameter_invalid


class By:
    """Chooses one of several operations by a parameter of the query."""

    def __init__(self, parameter: str, **endpoints: Endpoint) -> None:
        self.parameter, self.endpoints = parameter, endpoints


_GROUP = "/logstores/{logstore}/consumergroups/{group}"
_SHARD = "/logstores/{logstore}/shards/{shard}"

ROUTES: dict[str, dict[str, Endpoint | By]] = {
    "/": {
        "GET": resources.get_project,  # or list_project, see below
        "POST": resources.create_project,
        "PUT": resources.update_project,
        "DELETE": resources.delete_project,
    },
    "/logstores": {"GET": resources.list_logstore, "POST": resources.create_logstore},
    "/logstores/{logstore}": {
        "GET": resources.get_logstore,
        "POST": logs.put_logs,  # as the Go, C++ and C# SDKs put without a hash key
        "PUT": resources.update_logstore,
        "DELETE": resources.delete_logstore,
    },
    "/logstores/{logstore}/shards": {"GET": resources.list_shards},
    "/logstores/{logstore}/shards/{way:put}": {"POST": logs.put_logs},
    _SHARD: {
        "GET": By(
            "type",
            cursor=logs.get_cursor,
            cursor_time=logs.get_cursor_time,
            log=logs.pull_logs,
            logs=logs.pull_logs,  # as the Go SDK says it
        ),
        "POST": By("action", split=resources.split_shard, merge=resources.merge_shard),
        "DELETE": resources.delete_shard,
    },
    "/logstores/{logstore}/consumergroups": {
        "GET": resources.list_consumer_group,
        "POST": resources.create_consumer_group,
    },
    _GROUP: {
        "GET": resources.get_check_point,
        "POST": By("type", heartbeat=resources.heart_beat, checkpoint=resources.update_check_point),
        "PUT": resources.update_consumer_group,
        "DELETE": resources.delete_consumer_group,
    },
}


def _operations() -> tuple[str, ...]:
    names = {resources.list_project.__name__}
    for methods in ROUTES.values():
        for endpoint in methods.values():
            several = endpoint.endpoints.values() if isinstance(endpoint, By) else [endpoint]
            names |= {one.__name__ for one in several}
    return tuple(sorted(names))


OPERATIONS = _operations()
"""The names of all operations."""


def endpoint_of(route: str, method: str, query: Mapping[str, str]) -> Endpoint:
    """The operation that a request on `route` asks for. Raises a fault if the server does not offer it."""
    if route == "/" and method == "GET" and ("offset" in query or "size" in query):
        return resources.list_project
    endpoint = ROUTES.get(route, {}).get(method)
    if endpoint is None:
        raise ServiceFault(405, "InvalidMethod", f"{method} {route} is not offered by this local server")
    if isinstance(endpoint, By):
        value = query.get(endpoint.parameter, "")
        if value not in endpoint.endpoints:
            raise parameter_invalid(f"unknown {endpoint.parameter} {value!r}")
        return endpoint.endpoints[value]
    return endpoint
