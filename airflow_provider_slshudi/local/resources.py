"""Operations on projects, logstores, shards and consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.responses import JSONResponse, Response

from airflow_provider_slshudi.local.call import Call, number
from airflow_provider_slshudi.local.service_errors import ServiceFault, parameter_invalid

_LARGEST_PAGE = 500


def create_project(call: Call) -> Response:
    """A new project; its name is in the body, or in the host."""
    body = call.json()
    call.store.create_project(str(body.get("projectName", call.project)), body)
    return Response()


def get_project(call: Call) -> Response:
    """The project's description."""
    return JSONResponse(call.store.project(call.project))


def update_project(call: Call) -> Response:
    """Change its description."""
    call.store.update_project(call.project, call.json())
    return Response()


def delete_project(call: Call) -> Response:
    """Remove it with everything in it."""
    call.store.delete_project(call.project)
    return Response()


def list_project(call: Call) -> Response:
    """A page of the projects, by part of the name or of the description, and by resource group."""
    group, words = call.query.get("resourceGroupId", ""), call.query.get("description", "")
    projects = [
        project
        for project in call.store.projects()
        if group in ("", project["resourceGroupId"]) and words in project["description"]
    ]
    return _page(call, projects, "projects", "projectName", lambda project: str(project["projectName"]))


def create_logstore(call: Call) -> Response:
    """A new logstore with its shards."""
    call.store.create_logstore(call.project, call.json())
    return Response()


def get_logstore(call: Call) -> Response:
    """A logstore's settings."""
    return JSONResponse(call.logstore().describe())


def update_logstore(call: Call) -> Response:
    """Change a logstore's settings."""
    call.logstore().update(call.json())
    return Response()


def delete_logstore(call: Call) -> Response:
    """Remove a logstore with its log groups."""
    call.store.delete_logstore(call.project, call.path["logstore"])
    return Response()


def list_logstore(call: Call) -> Response:
    """A page of the logstores, by part of the name."""
    return _page(call, sorted(call.store.logstores(call.project)), "logstores", "logstoreName", str)


def list_shards(call: Call) -> Response:
    """All shards, readonly ones included."""
    return JSONResponse([asdict(shard) for shard in call.logstore().shards])


def split_shard(call: Call) -> Response:
    """Close a shard for two new ones."""
    shards = call.logstore().split(call.shard(), call.query.get("key", ""))
    return JSONResponse([asdict(shard) for shard in shards])


def merge_shard(call: Call) -> Response:
    """Close a shard and its right neighbour for a new one."""
    return JSONResponse([asdict(shard) for shard in call.logstore().merge(call.shard())])


def delete_shard(call: Call) -> Response:
    """Remove a readonly shard."""
    call.logstore().delete(call.shard())
    return Response()


def create_consumer_group(call: Call) -> Response:
    """A new consumer group."""
    body, logstore = call.json(), call.logstore()
    name = body.get("consumerGroup")
    if not isinstance(name, str) or not 0 < len(name) <= 128:
        raise ServiceFault(400, "JsonInfoInvalid", "consumerGroup or timeout is of error format")
    logstore.groups.create(name, body)
    return Response()


def list_consumer_group(call: Call) -> Response:
    """All consumer groups of a logstore."""
    groups = call.logstore().groups
    entries = [(name, groups.get(name)) for name in groups.names()]
    return JSONResponse([{"name": name, "timeout": group.timeout, "order": group.order} for name, group in entries])


def update_consumer_group(call: Call) -> Response:
    """Change a consumer group's timeout or order."""
    call.logstore().groups.update(call.path["group"], call.json())
    return Response()


def delete_consumer_group(call: Call) -> Response:
    """Forget a consumer group with its checkpoints."""
    call.logstore().groups.delete(call.path["group"])
    return Response()


def get_check_point(call: Call) -> Response:
    """The group's checkpoint of every shard, or of one; empty for a shard that it has not read."""
    logstore = call.logstore()
    checkpoints, shard_filter = logstore.groups.get(call.path["group"]).checkpoints, call.query.get("shard")
    answer: list[dict[str, Any]] = []
    for shard in (item.shardID for item in logstore.shards if shard_filter in (None, str(item.shardID))):
        checkpoint = (
            asdict(checkpoints[shard]) if shard in checkpoints else {"checkpoint": "", "updateTime": 0, "consumer": ""}
        )
        answer.append({"shard": shard, **checkpoint})
    return JSONResponse(answer)


def update_check_point(call: Call) -> Response:
    """Keep how far the group has read a shard; unless forced, only from the consumer that holds it."""
    logstore, body, name = call.logstore(), call.json(), call.path["group"]
    group, shard, consumer = logstore.groups.get(name), body.get("shard"), call.query.get("consumer", "")
    if type(shard) is not int or shard not in [item.shardID for item in logstore.shards]:
        raise ServiceFault(404, "ShardNotExist", "shard not exist")
    if call.query.get("forceSuccess", "").lower() != "true":
        group.check_owner(consumer, shard)
    logstore.groups.check(name, shard, str(body.get("checkpoint", "")), consumer)
    return Response()


def heart_beat(call: Call) -> Response:
    """Note that a consumer is alive; answer with the shards that it is to read."""
    logstore, consumer = call.logstore(), call.query.get("consumer", "")
    if not consumer:
        raise parameter_invalid("consumer is missing")
    shards = [item.shardID for item in logstore.shards]
    return JSONResponse(logstore.groups.get(call.path["group"]).heartbeat(consumer, call.ids(), shards))


def _page(call: Call, items: list[Any], key: str, pattern: str, name_of: Callable[[Any], str]) -> Response:
    """The answer of a listing: items whose name contains the query's `pattern` value, cut to offset and size."""
    # The Node.js SDK sends parameters that a program leaves out as empty ones.
    offset, size = number(call.query.get("offset") or "0"), number(call.query.get("size") or "100")
    if offset is None or size is None or size > _LARGEST_PAGE:
        raise parameter_invalid(f"offset and size are integers from 0, size is at most {_LARGEST_PAGE}")
    matches = [item for item in items if call.query.get(pattern, "") in name_of(item)]
    cut = matches[offset : offset + size]
    return JSONResponse({"count": len(cut), "total": len(matches), key: cut})
