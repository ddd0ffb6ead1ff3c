"""A logstore's consumer groups: checkpoints, kept on disk, and consumers' shards, which heartbeats keep assigned."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_slshudi.local.files import replace_json
from airflow_provider_slshudi.local.service_errors import ServiceFault

_LARGEST_TIMEOUT = 24 * 60 * 60


@dataclass(slots=True)
class Checkpoint:
    """How far a group has read a shard, in the service's own words."""

    checkpoint: str
    updateTime: int  # microseconds
    consumer: str


@dataclass(slots=True)
class _Consumer:
    seen: float
    assigned: set[int] = field(default_factory=set)
    holds: set[int] = field(default_factory=set)


class ConsumerGroup:
    """One group; `timeout` is the seconds without a heartbeat after which a consumer's shards go to others."""

    def __init__(self, timeout: int, order: bool, checkpoints: dict[int, Checkpoint]) -> None:
        self.timeout, self.order, self.checkpoints = timeout, order, checkpoints
        self._consumers: dict[str, _Consumer] = {}

    def heartbeat(self, name: str, holds: Iterable[int], shards: Iterable[int]) -> list[int]:
        """The shards that consumer `name` is to read, spread evenly over the living consumers.

        Another consumer gets a shard only after its reader leaves it out of its heartbeat or dies.
        https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-consumergroupheartbeat
        """
        now, holding, every = time.monotonic(), set(holds), set(shards)
        self._bury(now)
        if name not in self._consumers and holding:
            message = "non-exist consumer with non-empty body of heartbeat message"
            raise ServiceFault(400, "NotExistConsumerWithBody", message)
        consumer = self._consumers.setdefault(name, _Consumer(now))
        consumer.seen, consumer.holds = now, holding
        share = -(-len(every) // len(self._consumers))
        mine = sorted(consumer.assigned & every)[:share]
        taken = {shard for other in self._consumers.values() for shard in other.assigned | other.holds}
        free = sorted(every - (taken - holding) - set(mine))
        consumer.assigned = set(mine + free[: share - len(mine)])
        return sorted(consumer.assigned)

    def check_owner(self, name: str, shard: int) -> None:
        """Raise a fault unless `name` is a living consumer that was given `shard`."""
        self._bury(time.monotonic())
        if name not in self._consumers:
            raise ServiceFault(404, "ConsumerNotExsit", f"consumer {name} does not exist")  # the service's spelling
        consumer = self._consumers[name]
        if shard not in consumer.assigned | consumer.holds:
            raise ServiceFault(400, "ConsumerNotMatch", f"shard {shard} is not held by consumer {name}")

    def _bury(self, now: float) -> None:
        dead = [name for name, consumer in self._consumers.items() if now - consumer.seen > self.timeout]
        for name in dead:
            del self._consumers[name]


class ConsumerGroups:
    """All groups of a logstore, kept in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        saved = json.loads(path.read_text()) if path.exists() else {}
        self._groups = {name: _load(group) for name, group in saved.items()}

    def names(self) -> list[str]:
        """All groups by name."""
        return sorted(self._groups)

    def get(self, name: str) -> ConsumerGroup:
        """One group. Raises ConsumerGroupNotExist."""
        if name not in self._groups:
            raise ServiceFault(404, "ConsumerGroupNotExist", "consumer group not exist")
        return self._groups[name]

    def create(self, name: str, asked: dict[str, Any]) -> None:
        """Make a group from the body of CreateConsumerGroup."""
        if name in self._groups:
            raise ServiceFault(400, "ConsumerGroupAlreadyExist", "consumer group already exist")
        self._groups[name] = ConsumerGroup(_timeout(asked.get("timeout")), _order(asked.get("order", False)), {})
        self._save()

    def update(self, name: str, asked: dict[str, Any]) -> None:
        """Change the settings that UpdateConsumerGroup may change."""
        group = self.get(name)
        timeout, order = _timeout(asked.get("timeout", group.timeout)), _order(asked.get("order", group.order))
        group.timeout, group.order = timeout, order
        self._save()

    def delete(self, name: str) -> None:
        """Forget a group and its checkpoints."""
        self.get(name)
        del self._groups[name]
        self._save()

    def check(self, name: str, shard: int, checkpoint: str, consumer: str) -> None:
        """Keep how far the group has read `shard`. Raises InvalidShardCheckPoint.

        Args:
            name: the consumer group's.
            shard: its id.
            checkpoint: the cursor up to which it was read.
            consumer: the consumer that read it.
        """
        try:
            base64.b64decode(checkpoint, validate=True)
        except (binascii.Error, ValueError):
            message = "shard checkpoint not encoded by base64"
            raise ServiceFault(400, "InvalidShardCheckPoint", message) from None
        self.get(name).checkpoints[shard] = Checkpoint(checkpoint, time.time_ns() // 1000, consumer)
        self._save()

    def forget(self, shard: int) -> None:
        """Drop the checkpoints of a shard that was deleted."""
        for group in self._groups.values():
            group.checkpoints.pop(shard, None)
        self._save()

    def _save(self) -> None:
        saved = {
            name: {
                "timeout": group.timeout,
                "order": group.order,
                "checkpoints": {shard: asdict(item) for shard, item in group.checkpoints.items()},
            }
            for name, group in self._groups.items()
        }
        replace_json(self._path, saved)


def _load(saved: dict[str, Any]) -> ConsumerGroup:
    checkpoints = {int(shard): Checkpoint(**item) for shard, item in saved["checkpoints"].items()}
    return ConsumerGroup(saved["timeout"], saved["order"], checkpoints)


def _timeout(value: object) -> int:
    if type(value) is not int or not 0 < value <= _LARGEST_TIMEOUT:
        raise ServiceFault(400, "JsonInfoInvalid", "consumerGroup or timeout is of error format")
    return value


def _order(value: object) -> bool:
    if not isinstance(value, bool):
        raise ServiceFault(400, "JsonInfoInvalid", "order is true or false")
    return value
