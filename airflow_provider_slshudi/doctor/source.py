"""The log service, asked what a pipeline asks it."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_slshudi.doctor import finding
from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, warning, wrong
from airflow_provider_slshudi.exceptions import SourceRefused
from airflow_provider_slshudi.sls.answers import Shard
from airflow_provider_slshudi.sls.connection import VERSION, split_endpoint
from airflow_provider_slshudi.sls.service import LogService

_DENIED = "Unauthorized"
_NO_PROJECT = "ProjectNotExist"
_DAY = 86_400
# The service refuses requests whose time is further off.
_MOST_SECONDS_OFF = 900


class Logstore:
    """The checks of one logstore; `connect` gives its client."""

    def __init__(self, connect: Callable[[], LogService]) -> None:
        self._connect = connect
        self._service: LogService | None = None
        self._answers = False
        self._shards: list[Shard] = []

    def checks(self) -> list[Check]:
        """All checks, in the order in which each needs the ones before it."""
        return [
            Check("connection", self.connection),
            Check("shards", self.shards),
            Check("cursors", self.cursor),
            Check("retention", self.retention),
            Check("service's clock", self.clock),
        ]

    def checks_of_none(self) -> list[Check]:
        """The checks of a logstore that does not exist, where the connection names none that does."""
        return [
            Check("connection", self.connection),
            Check("endpoint and key", self.nothing),
            Check("service's clock", self.clock),
        ]

    def connection(self) -> Seen:
        """Endpoint and logstore."""
        self._service = service = self._connect()
        connection = service.connection
        where = f"{connection.endpoint}, {service.project}/{service.logstore}"
        if split_endpoint(connection.endpoint)[0] == "http":
            return warning(f"{where}: logs travel by plain HTTP, readable on the way", "begin the host with https://")
        if connection.auth_version != VERSION:
            return warning(
                f"{where}: requests are signed by {connection.auth_version}, which is the older signature",
                f"set the extra auth_version to {VERSION}, and region",
            )
        return ok(f"{where}, by TLS")

    def nothing(self) -> Seen:
        """Whether the service answers, and does not refuse the key, by a project that does not exist."""
        if self._service is None:
            return _not_asked()
        try:
            self._service.shards()
        except SourceRefused as refused:
            self._answers = True
            if refused.code != _NO_PROJECT:
                raise
        return ok(
            "the endpoint answers and does not refuse the key. Name a project and a logstore, for this test alone, to "
            "know whether the key may read them"
        )

    def shards(self) -> Seen:
        """The permission log:ListShards."""
        if self._service is None:
            return _not_asked()
        try:
            self._shards = self._service.shards()
        except SourceRefused as refused:
            self._answers = True
            if refused.code != _DENIED:
                raise
            return wrong(str(refused), f"if key and token are right, {_allow(self._service, 'log:ListShards')}")
        self._answers = True
        if not self._shards:
            return wrong("the logstore has no shard", "look at it in the console")
        return ok(f"log:ListShards is allowed: {len(self._shards)} shards")

    def cursor(self) -> Seen:
        """The permission log:GetCursorOrData, which pulls need, too."""
        if self._service is None or not self._shards:
            return unknown("not asked: the shards are not known")
        shard = next((item for item in self._shards if item.status == "readwrite"), self._shards[0])
        try:
            end = self._service.end(shard.id)
        except SourceRefused as refused:
            if refused.code != _DENIED:
                raise
            # The same key has just listed the shards, so it is right.
            return wrong(_not_allowed("log:GetCursorOrData", refused), _allow(self._service, "log:GetCursorOrData"))
        return ok(f"log:GetCursorOrData is allowed: shard {shard.id} ends at {end}")

    def retention(self) -> Seen:
        """The permission log:GetLogStore, without which pipelines run as well."""
        if self._service is None or not self._shards:
            return unknown("not asked: the shards are not known")
        try:
            retention = self._service.retention()
        except SourceRefused as refused:
            return warning(
                f"{_not_allowed('log:GetLogStore', refused)}. Pipelines run without it; but a shard that is a day old "
                "when it is first seen counts as one that may have lost logs",
                _allow(self._service, "log:GetLogStore"),
            )
        if retention is None:
            return unknown("log:GetLogStore is allowed, but the service does not say how long it keeps logs")
        return ok(f"log:GetLogStore is allowed: logs are kept for {retention[0] // _DAY} days")

    def clock(self) -> Seen:
        """This machine's clock beside the service's."""
        if self._service is None or not self._answers:
            return unknown("not asked: the service does not answer")
        ahead = self._service.ahead()
        if ahead is None:
            return unknown("the service's answers bear no date")
        return finding.compared(ahead, "the log service's", stops=abs(ahead) > _MOST_SECONDS_OFF)


def _not_asked() -> Seen:
    return unknown("not asked: the connection cannot be used")


def _not_allowed(permission: str, refused: SourceRefused) -> str:
    return f"{permission} is not allowed ({refused.code}, request {refused.request_id})"


def _allow(service: LogService, permission: str) -> str:
    return f"allow the key {permission} on acs:log:*:*:project/{service.project}/logstore/{service.logstore}"
