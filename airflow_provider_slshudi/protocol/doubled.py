"""Finds ranges that a table holds twice: two ledgers decided for it without knowing the other's batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_provider_slshudi.exceptions import RangesDoubled
from airflow_provider_slshudi.ledger.records import CommittedBatch
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.ranges import Range, merge, overlap, subtract


@dataclass(frozen=True)
class Doubled:
    """A commit, and those of its ranges (merged) that the table already had when it was completed."""

    batch: CommittedBatch
    ranges: list[Range]

    def __str__(self) -> str:
        told = ", ".join(map(str, self.ranges[:5]))
        more = f" and {len(self.ranges) - 5} more" if len(self.ranges) > 5 else ""
        return f"instant {self.batch.instant} (transaction {self.batch.id}) {told}{more}"


def doubled(batches: Sequence[CommittedBatch]) -> list[Doubled]:
    """The commits that hold ranges of earlier ones; `batches` are in the order of completion. Gaps hold nothing."""
    found, taken = [], list[Range]()
    for batch in batches:
        read = [item for item in batch.ranges if not item.gap]
        if twice := overlap(read, taken):
            found.append(Doubled(batch, twice))
        taken = merge([*taken, *read])
    return found


def without_filled_gaps(batches: Sequence[CommittedBatch]) -> list[CommittedBatch]:
    """The same batches, with their gaps cut to cursors that no other batch read and no earlier batch has as a gap."""
    if not any(item.gap for batch in batches for item in batch.ranges):
        return list(batches)
    taken = merge(item for batch in batches for item in batch.ranges if not item.gap)
    made = []
    for batch in batches:
        left = subtract((item for item in batch.ranges if item.gap), taken)
        taken = merge([*taken, *left])
        gaps = [replace(item, gap=True) for item in left]
        made.append(replace(batch, ranges=(*(item for item in batch.ranges if not item.gap), *gaps)))
    return made


def refuse(work: Work, found: Sequence[Doubled]) -> RangesDoubled:
    """The error for a table that holds logs twice."""
    return RangesDoubled(
        f"{work.storage.uri}: {len(found)} commits of pipeline {work.pipeline.name} repeat ranges of earlier commits, "
        f"so these logs are in the table twice: {'; '.join(map(str, found[:5]))}"
        f"{'; and more' if len(found) > 5 else ''}. Nothing was changed: a rebuilt ledger would count them once. "
        "Restore the table, and its quarantine, with Hudi or from a backup to before the first of these commits, then "
        f"run `slshudi ledger rebuild {work.pipeline.name}`: later logs are read again",
        table=work.storage.uri,
        instant=found[0].batch.instant,
        ranges=[(item.batch.id, part) for item in found for part in item.ranges],
    )
