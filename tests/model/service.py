"""The log service as integers: a shard is a begin and an end, a log group holds one log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.service import Shard

BYTES_PER_GROUP = 1000


class ModelService:
    """What planning and reading ask the service for; it has no secrets."""

    requests = 0
    listed: int | None = None

    def __init__(self) -> None:
        self._ends: dict[int, int] = {0: 10, 1: 10}
        self._begins: dict[int, int] = {0: 10, 1: 10}
        self._readonly: set[int] = set()

    def to_env(self) -> dict[str, str]:
        return {}

    def of_shard(self, shard: int) -> ModelService:
        return self

    def put(self, shard: int, count: int) -> None:
        """Logs arrive; a closed shard's go to the first that is open."""
        if shard in self._readonly or shard not in self._ends:
            shard = min(self._ends.keys() - self._readonly)
        self._ends[shard] += count

    def split(self, shard: int) -> None:
        """Closes a shard and opens two."""
        if shard in self._readonly or shard not in self._ends:
            return
        self._readonly.add(shard)
        for child in (len(self._ends), len(self._ends) + 1):
            self._ends[child] = self._begins[child] = 10

    def keys(self) -> set[str]:
        """The row keys of all logs."""
        return {
            f"{shard}-{cursor}-0" for shard, end in self._ends.items() for cursor in range(self._begins[shard], end)
        }

    def shards(self) -> list[Shard]:
        self.listed = int(time.time())
        return [
            Shard(shard, "readonly" if shard in self._readonly else "readwrite", "0" * 32, "f" * 32, int(time.time()))
            for shard in sorted(self._ends)
        ]

    def begin(self, shard: int) -> int:
        return self._begins[shard]

    def end(self, shard: int) -> int:
        return self._ends[shard]

    def end_if_there(self, shard: int) -> int | None:
        return self._ends.get(shard)

    def at(self, shard: int, unix_seconds: int) -> int:
        return self._ends[shard]

    def received(self, shard: int, cursor: int) -> int:
        return int(time.time())

    def retention(self) -> tuple[int, int]:
        return 7 * 86_400, 0


@dataclass(frozen=True)
class _Pull:
    item: Range
    lost: bool = False

    @property
    def raw_size(self) -> int:
        return self.groups * BYTES_PER_GROUP

    @property
    def groups(self) -> int:
        return len(self.item)

    @property
    def shard(self) -> int:
        return self.item.shard

    @property
    def begin(self) -> int:
        return self.item.begin

    @property
    def next(self) -> int:
        return self.item.end

    @property
    def body(self) -> Range:
        return self.item


def fits(cursor: int) -> bool:
    """Each third log lacks what is required of it."""
    return cursor % 3 != 0


def in_turn(readers: Mapping[int, ModelReader], ranges: Sequence[Range], at_once: int) -> Iterator[tuple[Range, _Pull]]:
    """In place of `sls.reader.together`, which has threads: each range in one pull."""
    yield from ((item, _Pull(item)) for item in ranges)


class ModelReader:
    """In place of `sls.reader.Reader`: gives the logs of a pull."""

    def __init__(self, *_: Any) -> None:
        pass

    def decoded(self, pull: _Pull, keys: Sequence[str]) -> Iterator[tuple[_Pull, pa.Table]]:
        yield pull, _logs(pull.item, keys)


def whole(piece: _Pull, keys: Sequence[str]) -> pa.Table:
    """In place of `sls.pieces.decode_piece`."""
    return _logs(piece.item, keys)


def _logs(item: Range, keys: Sequence[str]) -> pa.Table:
    cursors = list(range(item.begin, item.end))
    same: dict[str, tuple[object, pa.DataType]] = {
        "__time__": (1_700_000_000, pa.int64()),
        "__time_ns_part__": (None, pa.uint32()),
    }
    same |= {"__index__": (0, pa.int64()), "__topic__": (b"", pa.binary()), "__source__": (b"", pa.binary())}
    same |= {"__rest__": ([(b"k", b"v")], pa.map_(pa.binary(), pa.binary()))}
    columns = {name: pa.array([value] * len(cursors), type_) for name, (value, type_) in same.items()}
    columns |= {key: pa.array([b"x" if fits(at) else None for at in cursors], pa.binary()) for key in keys}
    return pa.table({"__cursor__": pa.array(cursors, pa.int64()), **columns})
