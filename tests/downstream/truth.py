"""What is true of a drawn history: which logs are committed, and what may be called complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_slshudi.ledger.records import GONE, LATE, Completion, LedgerShard, PartitionRow, PartitionState
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.transaction.backlog import SERVICE_CLOCKS_SECONDS
from tests.downstream.drawn_service import Log, Shard

HOUR = 3_600
AWAITED = (PartitionState.OPEN, PartitionState.REOPENED)


@dataclass(frozen=True)
class Look:
    """A look that the ledger keeps.

    Attributes:
        looked: the service's time that it stands for.
        ends: where shards ended then; those that are gone have their last ends.
        present: the shards that answered.
    """

    looked: int
    ends: Mapping[int, int]
    present: frozenset[int]


@dataclass
class Truth:
    """The logs of shards, and what became of them.

    Attributes:
        shards: the service's.
        lateness: as declared, seconds.
        ours: the first shards, for which the pipeline's duty begins where its file says.
        start: the file's `source.start`.
        committed, gaps: by shard, the cursors of committed batches.
        looks: those that count for when a partition could be complete.
    """

    shards: list[Shard]
    lateness: int
    start: str | int
    ours: frozenset[int] = frozenset()
    committed: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    gaps: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    looks: list[Look] = field(default_factory=list)

    def commit(self, ranges: list[Range]) -> None:
        """A batch is committed."""
        for item in ranges:
            (self.gaps if item.gap else self.committed)[item.shard].update(range(item.begin, item.end))

    def rows(self, begin: int) -> int:
        """How many logs of an hour are committed."""
        return sum(
            begin <= shard.log(cursor).event < begin + HOUR
            for shard in self.shards
            for cursor in self.committed[shard.id]
        )

    def too_early(self, item: Completion, begin: int, known: Mapping[int, LedgerShard]) -> Iterator[str]:
        """Why an hour should not have been called complete."""
        for shard in self.shards:
            for cursor, log in enumerate(shard.logs, shard.base):
                if not begin <= log.event < begin + HOUR or log.received >= begin + HOUR + self.lateness:
                    continue
                if why := self._missing(shard, cursor, log, item.gaps > 0, known.get(shard.id)):
                    yield f"{item}: log {cursor} of shard {shard.id}, received {log.received}: {why}"
                    break
        if (rows := self.rows(begin)) != item.rows:
            yield f"{item}: {rows} rows are committed"

    def _missing(self, shard: Shard, cursor: int, log: Log, is_told: bool, known: LedgerShard | None) -> str:
        if cursor in self.committed[shard.id]:
            return ""
        if cursor in self.gaps[shard.id]:
            return "" if is_told else "it is in a gap that is not told"
        is_lost = shard.deleted or cursor < shard.held
        if known is None:
            return "" if shard.deleted and is_told else "its shard is not known"
        if shard.id in self.ours and cursor < known.first:
            # Only a log that tells of a time to come is of an hour that began after it was received.
            is_of_future = log.event > log.received + SERVICE_CLOCKS_SECONDS
            # From a time on that the service does not hold any more, what it dropped since then is lost.
            if self.start == "begin" or (self.start != "end" and log.received >= int(self.start)):
                return "" if is_told or is_of_future else "it was lost before the pipeline began, which is not told"
            return "" if is_of_future else "it came before the pipeline began"
        is_accepted = cursor < known.first or (known.status == GONE and cursor >= (known.end or 0))
        if is_lost and is_accepted and known.status != LATE:
            return "" if is_told else "it was lost with its shard, which is not told"
        return "it is lost, which is not accepted" if is_lost else "it is not committed"

    def could_be(self, known: Mapping[int, LedgerShard]) -> int | None:
        """Up to which time all that was received is committed, as far as looks could tell; None where they could not.

        Args:
            known: the ledger's shards.
        """
        if any(shard.status == LATE for shard in known.values()):
            return None
        return max((look.looked for look in self.looks if self._is_read(look, known)), default=None)

    def _is_read(self, look: Look, known: Mapping[int, LedgerShard]) -> bool:
        for id_, shard in known.items():
            end = look.ends.get(id_)
            if end is None:  # it came later
                continue
            if id_ not in look.present and not shard.end_known:
                return False
            read = self.committed[id_] | self.gaps[id_]
            if not read.issuperset(range(shard.first, end)):
                return False
        return True


def too_late(
    rows: list[PartitionRow], since: int, could_be: int, lateness: int, waits: Callable[[PartitionRow], bool]
) -> Iterator[str]:
    """The hours that should be complete and are not.

    Args:
        rows: the ledger's.
        since: hours that begin later have to be there, even if they have no logs.
        could_be: see `Truth.could_be`.
        lateness: as declared, seconds.
        waits: whether a backfill that wrote to it is under way.
    """
    for item in rows:
        is_due = could_be >= max(item.end + lateness, item.opened)
        if item.state in AWAITED and is_due and not waits(item):
            yield f"{item} could be complete: all received until {could_be} is committed"
    there = {item.begin for item in rows}
    for begin in range(since // HOUR * HOUR + HOUR, could_be - lateness - HOUR + 1, HOUR):
        if begin not in there:
            yield f"an hour without logs, {begin}, is not there"
