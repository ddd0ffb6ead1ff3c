"""Proof: the rows of the table, by their keys, against what the ledger says was committed."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_slshudi.exceptions import TableError
from airflow_provider_slshudi.job.orders import Verb
from airflow_provider_slshudi.job.verify import leave_coverage, take_counts
from airflow_provider_slshudi.protocol.evidence import check_table_against_ledger
from airflow_provider_slshudi.protocol.work import Work


@dataclass(frozen=True)
class ShardProof:
    """One shard: rows that the ledger recorded, rows in the table, and what is wrong with them.

    `doubled` rows have a key that another row has; `foreign` ones lie outside the coverage; `missing` is how many
    recorded logs have no row.
    """

    shard: int
    recorded: int
    rows: int
    missing: int
    doubled: int
    foreign: int


@dataclass(frozen=True)
class Proof:
    """All shards, and rows whose key names no shard and cursor at all."""

    shards: list[ShardProof]
    unreadable: int

    @property
    def ok(self) -> bool:
        """Nothing missing, doubled or foreign."""
        return not self.unreadable and all(not (item.missing or item.doubled or item.foreign) for item in self.shards)

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return sum(item.rows for item in self.shards) + self.unreadable

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ok": self.ok, "rows": self.rows}


def verify(work: Work) -> Proof:
    """Compares the table with the ledger.

    A batch that commits meanwhile shows as foreign rows: verify a pipeline that is paused or between two batches.

    Raises:
        LedgerAhead, LedgerLost: already the newest commits disagree.
        TableError: there is no table yet.
        JobFailed: the job that counts did not end well.
    """
    check_table_against_ledger(work)
    if not work.storage.exists(".hoodie/hoodie.properties"):
        raise TableError(
            f"{work.storage.uri} has no table yet: nothing was committed, run a batch first", table=work.storage.uri
        )
    name, id_ = work.pipeline.name, uuid.uuid4().hex
    recorded = work.ledger.committed_rows(name)
    leave_coverage(work.storage, id_, [(item.shard, item.begin, item.end) for item in work.ledger.coverage(name)])
    work.launcher.run(Verb.VERIFY, work.order(transaction=id_), {})
    counts = take_counts(work.storage, id_)
    if counts is None:
        raise TableError(f"{work.storage.uri}: the job that verifies left no counts", table=work.storage.uri)
    found = {item.shard: item for item in counts.shards}
    shards = []
    for shard in sorted({*recorded, *found}):
        wanted, seen = recorded.get(shard, 0), found.get(shard)
        rows, distinct, foreign = (seen.rows, seen.distinct, seen.foreign) if seen else (0, 0, 0)
        doubled = rows - distinct
        missing = max(0, wanted - (distinct - foreign))
        shards.append(ShardProof(shard, wanted, rows, missing, doubled, foreign))
    return Proof(shards, counts.unreadable)
