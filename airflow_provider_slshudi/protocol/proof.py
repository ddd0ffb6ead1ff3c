"""What a verification proves: figures per range and shard, and whether anything is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_provider_slshudi.ledger.records import Audit, RecordedRange
from airflow_provider_slshudi.notes.verification import Findings, Outside, RangeFound

_COUNTS = ("recorded", "rows", "missing", "doubled", "foreign")
_OF_SERVICE = ("compared", "not_comparable", "lacking", "strange")


@dataclass(frozen=True)
class Counts:
    """Rows of a range, a shard or the table.

    Attributes:
        recorded: rows that the ledger recorded.
        rows: rows in the table, and in the quarantine.
        missing: recorded rows that are not there.
        doubled: surplus rows, whose key another row has.
        foreign: rows that no transaction of the pipeline wrote: outside all recorded ranges, under another instant
            than their range's, or more than were recorded.
        compared: log groups that were compared with the service; None, like the next three, where it was not asked.
        not_comparable: log groups that the service no longer holds, of which nothing is known.
        lacking: logs that the service has and the table has not.
        strange: rows whose log group the service has, but without such a log.
        quarantined: how many of `rows` are in the quarantine; None where there is none.
        erased: recorded rows that accepted erasures took: they are neither among `rows` nor `missing`; None where there
            are none.
    """

    recorded: int
    rows: int
    missing: int
    doubled: int
    foreign: int
    compared: int | None = None
    not_comparable: int | None = None
    lacking: int | None = None
    strange: int | None = None
    quarantined: int | None = None
    erased: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; log groups that could not be compared with the service do not count."""
        return not (self.missing or self.doubled or self.foreign or self.lacking or self.strange)

    def to_dict(self) -> dict[str, int]:
        """For JSON; leaves out figures that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class RangeProof:
    """One recorded range. `examples` has the first row key, or cursor, of each kind of wrong rows."""

    shard: int
    begin: int
    end: int
    gap: bool
    transaction: str
    instant: str
    counts: Counts
    examples: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ids = {name: getattr(self, name) for name in ("shard", "begin", "end", "gap", "transaction", "instant")}
        return {**ids, **self.counts.to_dict(), "examples": dict(self.examples)}


@dataclass(frozen=True)
class ShardProof:
    """One shard: the sum of its ranges, and the rows outside of them (all foreign), with the key of one as example."""

    shard: int
    counts: Counts
    outside: int
    example: str | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"shard": self.shard, **self.counts.to_dict(), "outside": self.outside, "example": self.example}


@dataclass(frozen=True)
class Proof:
    """The whole table as of a commit; `unreadable` rows have a key that names no shard and cursor.

    `audit` says where the ledger contradicts itself.
    """

    as_of: str
    ranges: list[RangeProof]
    shards: list[ShardProof]
    totals: Counts
    unreadable: int
    unreadable_example: str | None
    audit: Audit = field(default_factory=Audit)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.totals.ok and not self.unreadable and self.audit.ok

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return self.totals.rows + self.unreadable

    @property
    def wrong(self) -> list[RangeProof]:
        """The ranges that differ from what was recorded."""
        return [item for item in self.ranges if not item.counts.ok]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "as_of": self.as_of,
            "rows": self.rows,
            "totals": self.totals.to_dict(),
            "unreadable": self.unreadable,
            "unreadable_example": self.unreadable_example,
            "coverage": {name: [str(item) for item in found] for name, found in self.audit.named().items()},
            "shards": [item.to_dict() for item in self.shards],
            "ranges": [item.to_dict() for item in self.ranges],
        }

    def complaint(self) -> str:
        """What is wrong, in one sentence; empty where nothing is."""
        counts = {**self.totals.to_dict(), "unreadable": self.unreadable}
        kinds = ("missing", "doubled", "foreign", "unreadable", "lacking", "strange")
        said = [f"{counts[kind]} {kind}" for kind in kinds if counts.get(kind)]
        places = [f"{item.shard}:[{item.begin}, {item.end}) of {item.transaction}" for item in self.wrong]
        places += [
            f"shard {item.shard} outside all ranges, like {item.example}" for item in self.shards if item.outside
        ]
        if self.unreadable:
            places.append(f"keys like {self.unreadable_example!r}")
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        rows = [f"{', '.join(said)} rows: {'; '.join(places[:3])}{more}"] if said else []
        return "; ".join([*rows, *self.ledger_complaints()])

    def ledger_complaints(self) -> list[str]:
        """Where the ledger contradicts itself, a sentence for each kind."""
        what = {
            "uncovered": "committed and not covered, so it will be read again",
            "unrecorded": "covered and in no committed transaction, so it is never read",
            "twice": "in two committed transactions",
        }
        return [
            f"{', '.join(map(str, found[:3]))}{' and more' if len(found) > 3 else ''}: {what[name]}"
            for name, found in self.audit.named().items()
            if found
        ]


def prove(
    as_of: str,
    recorded: Sequence[RecordedRange],
    found: Findings,
    with_source: bool,
    with_quarantine: bool = False,
    audit: Audit | None = None,
) -> Proof:
    """Compares the recorded ranges with what was found.

    Args:
        as_of: the newest completion that was looked at.
        recorded: each range with its rows.
        found: what the table holds of them.
        with_source: whether the log service was asked, too.
        with_quarantine: whether the quarantine was looked at.
        audit: what the ledger says; None: it was not asked.
    """
    by_number = {item.number: item for item in found.ranges}
    ranges = [
        _range_proof(item, by_number.get(number), with_source, with_quarantine) for number, item in enumerate(recorded)
    ]
    outside = {item.shard: item for item in found.outside if item.shard is not None}
    unreadable = next((item for item in found.outside if item.shard is None), Outside(None, 0, None))
    of_shard: dict[int, list[Counts]] = defaultdict(list)
    for item in ranges:
        of_shard[item.shard].append(item.counts)
    shards = [
        _shard_proof(shard, of_shard[shard], outside.get(shard, Outside(shard, 0, None)))
        for shard in sorted({*of_shard, *outside})
    ]
    totals = _sum((item.counts for item in shards), with_source, with_quarantine)
    return Proof(as_of, ranges, shards, totals, unreadable.rows, unreadable.example, audit or Audit())


def _range_proof(
    recorded: RecordedRange, found: RangeFound | None, with_source: bool, with_quarantine: bool
) -> RangeProof:
    item = recorded.range
    seen = found or RangeFound(0, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, None, None)
    wanted = recorded.rows or 0
    compared = seen.groups if with_source else None
    # A gap was gone before it was read: there is nothing to compare with.
    held = 0 if item.gap else len(item)
    counts = Counts(
        wanted,
        seen.rows,
        max(0, wanted - seen.own),
        seen.rows + seen.erased - seen.distinct,
        seen.distinct - seen.own + max(0, seen.own - wanted),
        compared,
        held - seen.groups if with_source else None,
        seen.lacking if with_source else None,
        seen.strange if with_source else None,
        seen.quarantined if with_quarantine else None,
        seen.erased or None,
    )
    places = {"row": seen.example, "lacking": seen.lacking_at, "strange": seen.strange_at}
    examples = {name: str(place) for name, place in places.items() if place is not None}
    return RangeProof(
        item.shard, item.begin, item.end, item.gap, recorded.transaction, recorded.instant, counts, examples
    )


def _shard_proof(shard: int, ranges: Sequence[Counts], outside: Outside) -> ShardProof:
    with_source = any(item.compared is not None for item in ranges)
    with_quarantine = any(item.quarantined is not None for item in ranges)
    rows = Counts(0, outside.rows, 0, 0, outside.rows)
    return ShardProof(shard, _sum([*ranges, rows], with_source, with_quarantine), outside.rows, outside.example)


def _sum(counts: Iterable[Counts], with_source: bool, with_quarantine: bool) -> Counts:
    listed = list(counts)
    names = (*_COUNTS, *(_OF_SERVICE if with_source else ()), *(("quarantined",) if with_quarantine else ()))
    summed = Counts(**{name: sum(getattr(item, name) or 0 for item in listed) for name in names})
    return replace(summed, erased=sum(item.erased or 0 for item in listed) or None)
