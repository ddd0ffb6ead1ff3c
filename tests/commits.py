"""A ledger whose pipeline of hourly partitions commits and looks, without a log service or a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, LedgerShard, RangeTotals, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import Mark

HOUR = 3_600
T0 = 1_767_225_600
"""2026-01-01 00:00 UTC."""


def hour(number: int) -> str:
    """The value of an hour's partition."""
    return f"2026-01-01-{number:02}"


@dataclass
class Committing:
    """Batches of one shard, one log group each, after a first look at `T0`; `pipeline` has hours, and a lateness."""

    ledger: Ledger
    pipeline: Pipeline
    end: int = 0

    def __post_init__(self) -> None:
        described = self.pipeline
        self.ledger.register(described.name, described.source.identity, described.table.path)
        self._save()
        self.look(0)

    def commit(self, *hours: int, rows: int = 1, run: str = "run-1", kind: Kind = Kind.TAIL) -> Transaction:
        """A batch that wrote so many rows to each of these hours."""
        self.end += 1
        self._save()
        range_, name = Range(0, self.end - 1, self.end), self.pipeline.name
        begun = self.ledger.begin(name, kind, [range_], "tail", run)
        opened = self.ledger.opened(begun.id, begun.token, f"20260101{self.end:09}")
        totals = [RangeTotals(range_, rows * len(hours), 10 * rows, T0, T0)]
        partition = self.pipeline.table.partition
        named = "" if partition is None else f"{partition.name}="
        partitions = {f"{named}{hour(number)}": rows for number in hours}
        self.ledger.prepared(begun.id, begun.token, {"files": 1}, totals, partitions=partitions)
        return self.ledger.committed(begun.id, begun.token, f"{opened.instant}9")

    def look(self, received: int, unread: int = 0) -> None:
        """A look at the service so many seconds after `T0`, which has logs that no batch has read."""
        marks: Mapping[int, list[Mark]] = {0: [Mark(self.end + unread, T0 + received)]}
        self.ledger.save_look(self.pipeline.name, T0 + received, marks)

    def _save(self) -> None:
        shard = LedgerShard(0, "readwrite", "0" * 32, "f" * 32, 0, self.end)
        self.ledger.save_shards(self.pipeline.name, [shard])
