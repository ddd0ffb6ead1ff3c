"""The official SDK's client and messages, as the scenarios of `local` and `sls` use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aliyun.log import LogClient, LogException
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw, LogGroupRaw

from airflow_provider_slshudi.sls.connection import SlsConnection

PROJECT = "demo-project"


def by_ip(connection: SlsConnection) -> LogClient:
    """A client of an address with a port: only the SDK's own switch for addresses is set on it."""
    client = by_name(connection.endpoint, connection)
    client._isRowIp = True
    return client


def by_name(endpoint: str, connection: SlsConnection) -> LogClient:
    """A client that nothing is set on."""
    return LogClient(
        endpoint,
        connection.access_key_id,
        connection.access_key_secret.reveal(),
        connection.security_token.reveal() or None,
        source="test",
        auth_version=connection.auth_version,
        region=connection.region,
    )


class Unanswered(Exception):
    """A request of `once` failed, with whatever the SDK said."""


class _Once(LogClient):  # type: ignore[misc]  # the SDK counts as untyped
    def _sendRequest(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._sendRequest(*args, **kwargs)
        except LogException as error:  # the only class that the SDK's ten attempts catch
            raise Unanswered(str(error)) from error


def once(connection: SlsConnection) -> LogClient:
    """A client by address that sends every request once."""
    client = _Once(connection.endpoint, connection.access_key_id, connection.access_key_secret.reveal(), source="test")
    client._isRowIp = True
    return client


def log_group(*values: bytes, time: int = 1_700_000_000, topic: str = "access") -> LogGroupRaw:
    """A log group with one log per value, under the key `value`."""
    group = LogGroupRaw(Topic=topic, Source="10.0.0.1")
    for value in values:
        log = group.Logs.add(Time=time)
        log.Contents.add(Key="value", Value=value)
    return group


def make_logstore(client: LogClient, name: str, shards: int = 1) -> str:
    """A new logstore in the demo project, which is made when missing."""
    if PROJECT not in [project["projectName"] for project in client.list_project().get_projects()]:
        client.create_project(PROJECT, "scenarios")
    client.create_logstore(PROJECT, name, ttl=7, shard_count=shards)
    return name


def put(client: LogClient, logstore: str, values: Sequence[bytes]) -> None:
    """One log group with one log per value, to the writable shards in turn."""
    client.put_log_raw(PROJECT, logstore, log_group(*values))


def values_of(client: LogClient, logstore: str, shard: int) -> list[list[bytes]]:
    """The values of every log group of a shard."""
    groups = groups_of(client, PROJECT, logstore, shard)
    return [[log.Contents[0].Value for log in group.Logs] for group in groups]


def groups_of(client: LogClient, project: str, logstore: str, shard: int) -> Iterator[Any]:
    """Every log group of a shard, read from its begin to its end with the SDK's own loop."""
    for answer in client.pull_log(project, logstore, shard, "begin", "end"):
        yield from LogGroupListRaw.FromString(answer._raw_uncompressed_body or b"").LogGroups
