"""Read and write quotas per shard and project, enforced as the service does: by rate, with a second's worth of burst.

https://www.alibabacloud.com/help/en/sls/product-overview/basic-resources and
https://www.alibabacloud.com/help/en/sls/user-guide/manage-shards
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.local.service_errors import ServiceFault

_MB = 1 << 20
Direction = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The service's limits: of shards per second, of projects per minute. Bytes are of log groups, decompressed."""

    shard_read_bytes: int = 10 * _MB
    shard_reads: int = 100
    shard_write_bytes: int = 5 * _MB
    shard_writes: int = 500
    project_reads: int = 600_000
    project_write_bytes: int = 100 * 1024 * _MB
    project_writes: int = 600_000

    @classmethod
    def parse(cls, changes: Sequence[str]) -> Limits:
        """The service's limits, changed by texts such as `shard_reads=5`. Raises ConfigError."""
        limits, names = cls(), [item.name for item in fields(cls)]
        for change in changes:
            name, _, value = change.partition("=")
            if name not in names or not (value.isascii() and value.isdigit() and int(value) > 0):
                message = f"quota {change!r}: expected NAME=NUMBER with NAME one of {', '.join(names)}"
                raise ConfigError(message, source="quotas", field=name, value=value)
            limits = replace(limits, **{name: int(value)})
        return limits


class _Bucket:
    """An allowance, refilled evenly by `limit` per `seconds`; one request may overdraw it, the next is then refused."""

    def __init__(self, limit: int, seconds: int) -> None:
        self._limit, self._rate = limit, limit / seconds
        self._level, self._at = float(limit), time.monotonic()

    def empty(self) -> bool:
        now = time.monotonic()
        self._level = min(self._limit, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level <= 0

    def take(self, amount: int) -> None:
        self._level -= amount


class Quotas:
    """Counts reads and writes of shards and projects against `limits`; without limits it refuses nothing."""

    def __init__(self, limits: Limits | None) -> None:
        self._limits = limits
        self._buckets: dict[tuple[str, ...], _Bucket] = {}

    def admit(self, direction: Direction, project: str, logstore: str, shard: int) -> None:
        """Count one request. Raises the fault of the quota that is used up.

        Args:
            direction: of the data.
            project: its name.
            logstore: its name.
            shard: its id.
        """
        if self._limits is None:
            return
        word = direction.capitalize()
        of_project = f"{word}QuotaExceed", f"Project {direction} quota exceed: "
        of_shard = f"Shard{word}QuotaExceed", f"shard {direction} qps/bytes exceed quota limits"
        place = (logstore, str(shard))
        requests = [
            (self._bucket(f"project_{direction}s", project), (of_project[0], of_project[1] + "qps")),
            (self._bucket(f"shard_{direction}s", project, *place), of_shard),
        ]
        amounts = [(self._bucket(f"shard_{direction}_bytes", project, *place), of_shard)]
        if direction == "write":
            inflow = self._bucket("project_write_bytes", project)
            amounts.append((inflow, (of_project[0], of_project[1] + "inflow")))
        for bucket, (code, message) in requests + amounts:
            if bucket.empty():
                raise ServiceFault(403, code, message)
        for bucket, _ in requests:
            bucket.take(1)

    def count(self, direction: Direction, project: str, logstore: str, shard: int, size: int) -> None:
        """Count the bytes of an admitted request.

        Args:
            direction: of the data.
            project: its name.
            logstore: its name.
            shard: its id.
            size: bytes.
        """
        if self._limits is None:
            return
        self._bucket(f"shard_{direction}_bytes", project, logstore, str(shard)).take(size)
        if direction == "write":
            self._bucket("project_write_bytes", project).take(size)

    def _bucket(self, limit: str, *place: str) -> _Bucket:
        key = (limit, *place)
        if key not in self._buckets:
            seconds = 60 if limit.startswith("project") else 1
            self._buckets[key] = _Bucket(getattr(self._limits, limit), seconds)
        return self._buckets[key]
