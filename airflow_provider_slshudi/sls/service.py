"""One logstore of the log service, through the official SDK, with this package's own timeouts, retries and checks."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aliyun.log import LogClient, LogException

from airflow_provider_slshudi.exceptions import ConfigError, SourceCorrupt, SourceError
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection, split_endpoint
from airflow_provider_slshudi.sls.faults import advice, error_class, retry

T = TypeVar("T")
Compression = Literal["lz4", "zstd"]

TIMEOUT = 10
"""Seconds to wait for a connection, and for the next bytes of an answer."""

PULL_GROUPS = 1000
"""The most log groups that the service puts into one answer."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the service lists it: its hash keys `[hash_begin, hash_end)` and when it was made, in unix seconds."""

    id: int
    status: Literal["readwrite", "readonly"]
    hash_begin: str
    hash_end: str
    created: int


@dataclass(frozen=True, slots=True)
class Pull:
    """One answer: `groups` log groups of `shard` from cursor `begin`; reading goes on at cursor `next`.

    `body` is the protobuf LogGroupList, decompressed, and `raw_size` its announced size in bytes.
    """

    shard: int
    begin: int
    next: int
    groups: int
    raw_size: int
    body: bytes = field(repr=False)


class _Unanswered(Exception):
    """Carries an SDK error past the SDK's retry loop, which catches LogException alone."""

    def __init__(self, error: LogException) -> None:
        super().__init__(str(error))
        self.error = error


class _Client(LogClient):
    """The SDK's client without its retries: ten fixed ones, blind to throttling, would hide behind ours."""

    def _sendRequest(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._sendRequest(*args, **kwargs)  # type: ignore[misc]
        except LogException as error:
            raise _Unanswered(error) from error


class LogService:
    """The shards and log groups of one logstore. Pickles, so that Spark tasks can carry it; for one reader at a time.

    `budget` is how many seconds a call may take with its retries before SourceUnavailable or SourceThrottled is raised;
    `compression` is asked for in pulls. Every call also raises SourceRefused and SourceCorrupt.
    """

    def __init__(
        self,
        connection: SlsConnection,
        project: str,
        logstore: str,
        *,
        budget: float = 60.0,
        compression: Compression = "lz4",
    ) -> None:
        for name, value in (("project", project), ("logstore", logstore)):
            if not value or "/" in value:
                raise ConfigError(f"{value!r} is no name of a {name}", source="SLS source", field=name, value=value)
        self.connection, self.project, self.logstore = connection, project, logstore
        self.budget, self.compression = budget, compression
        self._client = _client(connection)

    def __repr__(self) -> str:
        return f"LogService({self.connection!r}, {self.project!r}, {self.logstore!r})"

    def __reduce__(self) -> tuple[Callable[..., LogService], tuple[object, ...]]:
        return _rebuild, (self.connection, self.project, self.logstore, self.budget, self.compression)

    def shards(self) -> list[Shard]:
        """All shards, readonly ones included, by id.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-listshards
        """

        def listed() -> list[Shard]:
            answer: Any = self._client.list_shards(self.project, self.logstore)
            return sorted(map(_shard, answer.get_shards_info()), key=lambda shard: shard.id)

        return self._call("list the shards", None, None, listed)

    def begin(self, shard: int) -> int:
        """The cursor of the oldest log group that is still kept."""
        return self._cursor(shard, "begin")

    def end(self, shard: int) -> int:
        """The cursor that the next log group written will get."""
        return self._cursor(shard, "end")

    def at(self, shard: int, unix_seconds: int) -> int:
        """The cursor of the first log group that the service received at or after `unix_seconds`, or `end`."""
        return self._cursor(shard, str(int(unix_seconds)))

    def pull(self, shard: int, begin: int, end: int, count: int = PULL_GROUPS) -> Pull:
        """Up to `count` log groups of `[begin, end)`: fewer say nothing about the end, which is where `next` is `end`.

        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-pulllogs
        """
        if not begin <= end or not 1 <= count <= PULL_GROUPS:
            raise ValueError(f"cannot pull {count} log groups of [{begin}, {end})")

        start, stop = cursors.text(begin), cursors.text(end)

        def pulled() -> Pull:
            answer: Any = self._client.pull_logs(
                self.project, self.logstore, shard, start, count, stop, accept_compress_type=self.compression
            )
            # Private, but the only way to the bytes without the SDK's object for every field of every log.
            body = answer._raw_uncompressed_body or b""
            following = cursors.parse(answer.get_next_cursor())
            return Pull(shard, begin, following, answer.get_loggroup_count(), answer.get_raw_size(), body)

        pull = self._call("pull", shard, begin, pulled)
        if doubt := _doubt(pull, end):
            raise self.error(SourceCorrupt, f"pull answered with {doubt}", shard, begin)
        return pull

    def error(
        self, kind: type[SourceError], what: str, shard: int | None, cursor: int | None, **ids: str
    ) -> SourceError:
        """An error of `kind` that says `what` and carries all ids of this logstore."""
        place = f"{self.project}/{self.logstore}"
        if shard is not None:
            place += f" shard {shard}"
        if cursor is not None:
            place += f" cursor {cursor}"
        ids_of_place: dict[str, Any] = {"project": self.project, "logstore": self.logstore}
        return kind(f"{place}: {what}", shard=shard, cursor=cursor, **ids_of_place, **ids)

    def _cursor(self, shard: int, start: str) -> int:
        def asked() -> int:
            return cursors.parse(self._client.get_cursor(self.project, self.logstore, shard, start).get_cursor())

        return self._call(f"cursor of {start}", shard, None, asked)

    def _call(self, what: str, shard: int | None, cursor: int | None, send: Callable[[], T]) -> T:
        def attempt() -> T:
            try:
                return send()
            except _Unanswered as unanswered:
                raise self._fault(what, shard, cursor, unanswered.error) from unanswered.error
            except LogException as error:
                raise self._fault(what, shard, cursor, error) from error
            except Exception as error:
                # What the SDK could not make sense of: a missing header, a broken lz4 block, a cursor that is none.
                message = f"{what} got an answer that cannot be read: {type(error).__name__}: {error}"
                raise self.error(SourceCorrupt, message, shard, cursor) from error

        return retry(self.budget, attempt)

    def _fault(self, what: str, shard: int | None, cursor: int | None, error: LogException) -> SourceError:
        code, request_id = str(error.get_error_code()), str(error.get_request_id())
        kind = error_class(code, int(error.get_resp_status()))
        message = f"{what} failed with {code} ({error.get_error_message()}){advice(code)}"
        return self.error(kind, message, shard, cursor, code=code, request_id=request_id)


def _client(connection: SlsConnection) -> LogClient:
    client = _Client(
        connection.endpoint,
        connection.access_key_id,
        connection.access_key_secret,
        securityToken=connection.security_token or None,
        source="slshudi",  # otherwise the constructor opens a UDP socket to guess this machine's address
        auth_version=connection.auth_version,
        region=connection.region,
    )
    client.timeout = TIMEOUT
    address_by_ip(client, connection.endpoint)
    return client


def address_by_ip(client: Any, endpoint: str) -> None:
    """Keep the project out of the URL's host where that host is an IPv4 address: no name server knows `project.IP`.

    The SDK does so itself for a bare address only, not for one with a port or a scheme; the switch is private.
    """
    try:
        ipaddress.IPv4Address(split_endpoint(endpoint)[1])
    except ValueError:
        return
    client._isRowIp = True


def _rebuild(
    connection: SlsConnection, project: str, logstore: str, budget: float, compression: Compression
) -> LogService:
    return LogService(connection, project, logstore, budget=budget, compression=compression)


def _shard(listed: dict[str, Any]) -> Shard:
    if listed["status"] not in ("readwrite", "readonly"):
        raise ValueError(f"shard {listed['shardID']} has the unknown status {listed['status']!r}")
    return Shard(
        int(listed["shardID"]),
        listed["status"],
        listed["inclusiveBeginKey"],
        listed["exclusiveEndKey"],
        int(listed["createTime"]),
    )


def _doubt(pull: Pull, end: int) -> str:
    """What contradicts itself in an answer; empty where nothing does.

    A `next` beyond `begin + groups` is no contradiction: it is how expired data shows, which the reader decides on.
    """
    if len(pull.body) != pull.raw_size:
        return f"{len(pull.body)} bytes where x-log-bodyrawsize says {pull.raw_size}"
    if (pull.groups == 0) != (pull.raw_size == 0) or pull.groups < 0:
        return f"{pull.groups} log groups in {pull.raw_size} bytes"
    if pull.next < pull.begin + pull.groups:
        return f"{pull.groups} log groups but the next cursor {pull.next}"
    if pull.next > end:
        return f"the next cursor {pull.next}, beyond the end {end} that was asked for"
    return ""
