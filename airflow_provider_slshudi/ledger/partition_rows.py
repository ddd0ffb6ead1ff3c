"""Which partitions of event times are complete, on a connection: what looks and commits told, folded in order."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import (
    GONE,
    LATE,
    Completion,
    Kind,
    PartitionRow,
    PartitionState,
)
from airflow_provider_slshudi.planning.periods import Period, Periods
from airflow_provider_slshudi.planning.ranges import by_shard
from airflow_provider_slshudi.planning.watermark import Mark, ShardState, kept, watermark

_COMMITS, _PERIODS = 500, 1_000
"""The most commits that one fold takes, and ended periods of which it adds those that no commit wrote to."""
_LOSSES = 100
"""How many losses are kept apart; older ones count as one, for partitions that begin before the last of them."""
_ACT_HOLDS = timedelta(days=1)
"""How long an act that did not end holds up the partitions that it writes to."""
_pipelines, _partitions, _completions = models.pipelines, models.partitions, models.completions
_transactions, _ranges = models.transactions, models.ranges


class Folded(NamedTuple):
    """What a fold completed, and whether it is to be called again."""

    completions: list[Completion]
    has_more: bool


class Loss(NamedTuple):
    """Lost logs, received `before` then (unix seconds): so many `ranges`, or shards of which no cursors are known."""

    before: int
    ranges: int


_AWAITED = [PartitionState.OPEN.value, PartitionState.REOPENED.value]
_PARTITION = models.columns(_partitions, PartitionRow)
_COMPLETION = models.columns(_completions, Completion)


def save_look(
    connection: Connection,
    pipeline: str,
    looked: int,
    marks: Mapping[int, Sequence[Mark]],
    asked: int = 0,
    start: str | int | None = None,
) -> None:
    """Keeps what a look at the service's shards told of receive times.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        looked: the service's time before it listed its shards, in unix seconds.
        marks: of saved shards, by id.
        asked: so many seconds later, at most, all their ends were known.
        start: the file's `source.start`.
    """
    reads.lock_pipeline(connection, pipeline)
    table = models.shards
    former_look = connection.execute(select(_pipelines.c.looked).where(_pipelines.c.name == pipeline)).scalar()
    changed = []
    for shard, state in _shards(connection, pipeline).items():
        # A shard that gets its first mark was not on the list before this one: it had received nothing by then.
        is_new = shard in marks and not state.marks
        empty_until = [Mark(state.first, former_look)] if former_look is not None and is_new else []
        content = kept(state, [*empty_until, *marks.get(shard, ())])
        if content != state.marks:
            changed.append({"of_shard": shard, "marks": content})
    if changed:
        of_shard = (table.c.pipeline == pipeline) & (table.c.shard == bindparam("of_shard"))
        connection.execute(update(table).where(of_shard), changed)
    is_newer = func.coalesce(_pipelines.c.looked, 0) < looked
    connection.execute(update(_pipelines).where(_pipelines.c.name == pipeline, is_newer).values(looked=looked))
    # The pipeline reads from the first log that is unread at its first look; where none is, from that look on.
    if began(connection, pipeline) is not None:
        return
    if (first := watermark(_shards(connection, pipeline).values(), looked)) is not None:
        begin = first if first < looked else looked + asked
        # A lateness that is declared later: the first batch was planned once the begin of each shard was known. One
        # that was given up may be of another source, which the file named before.
        planned = select(_transactions.c.created).where(
            _transactions.c.pipeline == pipeline, _transactions.c.place.is_not(None)
        )
        if (moment := connection.execute(planned.order_by(_transactions.c.id).limit(1)).scalar()) is not None:
            # So long ago by the ledger's clock, which may differ from the service's.
            begin = min(begin, looked + asked - int((now(connection) - moment).total_seconds()))
        duty = {"began": begin, "start": None if start is None else str(start)}
        connection.execute(update(_pipelines).where(_pipelines.c.name == pipeline).values(duty))


def lose(connection: Connection, pipeline: str, before: int, shards: int) -> None:
    """Keeps that logs are lost of which no cursors are known, so that partitions tell of it as of gaps.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        before: all of them were received before this time, unix seconds.
        shards: how many shards lost some.
    """
    reads.lock_pipeline(connection, pipeline)
    is_it, table = _pipelines.c.name == pipeline, _partitions.c
    losses = connection.execute(select(_pipelines.c.losses).where(is_it)).scalar() or []
    bounded = _bounded([*(Loss(*loss) for loss in losses), Loss(before, shards)])
    connection.execute(update(_pipelines).where(is_it).values(losses=bounded))
    awaited = (table.pipeline == pipeline, table.state.in_(_AWAITED), table.begin < before)
    connection.execute(update(_partitions).where(*awaited).values(gaps=table.gaps + shards))


def reopen(connection: Connection, pipeline: str, lost: Sequence[Mapping[str, int] | None]) -> None:
    """Opens complete partitions again to which commits wrote that the table lost: their logs are read again.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        lost: of each of these commits the rows by the path of their partition; None where that is not known.
    """
    if None in lost:
        rows = _rows(connection, pipeline, _partitions.c.state == PartitionState.COMPLETE.value)
    else:
        rows = _named(connection, pipeline, {path.partition("=")[2] for item in lost for path in item or ()})
    looked = connection.execute(select(_pipelines.c.looked).where(_pipelines.c.name == pipeline)).scalar() or 0
    opened = [item.reopened(item.place, item.kind, looked) for item in rows.values()]
    stored = [{"pipeline": pipeline, **asdict(item)} | _names(item) for item in opened]
    upsert(connection, _partitions, stored, ["state", "opened"])


def fold(
    connection: Connection,
    pipeline: str,
    periods: Periods,
    prefix: str,
    lateness: int,
    since: int | None,
    acts: Sequence[str],
) -> Folded:
    """Folds commits since the last fold into partitions, and completes those that are complete.

    A partition is complete once the watermark (`planning.watermark`) is behind its end by `lateness`. A later commit to
    it opens it again, until all is committed that the service had received by then; a commit of which is not known
    what it wrote to opens all. Partitions that a backfill or a replay writes to wait until that is over.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        periods: of the table's partitions.
        prefix: how the path of a partition begins, before its value.
        lateness: seconds.
        since: partitions that begin before this time (unix seconds) are not wholly the pipeline's; None: all are.
        acts: names of acts that write many batches.
    """
    reads.lock_pipeline(connection, pipeline)
    table = _pipelines.c
    query = select(table.looked, table.folded, table.began, table.passed, table.losses).where(table.name == pipeline)
    looked, folded, begin, passed, former_losses = connection.execute(query).one()
    losses = [Loss(*loss) for loss in former_losses or ()]
    rows = _rows(connection, pipeline, _partitions.c.state.in_(_AWAITED))
    before = dict(rows)
    folded, has_more = _commit(connection, pipeline, periods, prefix, since, rows, losses, folded or 0, looked or 0)
    shards = _shards(connection, pipeline)
    mark = watermark(shards.values(), looked)
    completions: list[Completion] = []
    # Not before all commits are folded: a later one may have written to what would be complete.
    if mark is not None and begin is not None and not has_more:
        ended = list(islice(periods.ended(passed or begin, mark - lateness), _PERIODS))
        passed, has_more = ended[-1].end if ended else passed, len(ended) == _PERIODS
        # The period in which the pipeline began may have had logs before that.
        whole = [period for period in ended if period.begin >= begin and period.value not in rows]
        stored_rows = _named(connection, pipeline, [period.value for period in whole])
        rows |= _new((period for period in whole if period.value not in stored_rows), since, losses)
        waits = _is_under_way(connection, pipeline, acts)
        last, moment = last_number(connection, pipeline), now(connection)
        done = [item for item in rows.values() if item.is_complete(mark, lateness)]
        done = [item for item in done if item.kind is Kind.TAIL or not waits]
        for number, item in enumerate(sorted(done, key=lambda item: item.begin), last + 1):
            rows[item.value] = complete = item.complete(moment)
            counts = complete.times, folded, complete.rows, complete.gaps
            completions.append(Completion(number, complete.value, *counts, mark, moment))
        if completions:
            proof = _packed({id_: state.proof.cursor for id_, state in shards.items() if state.proof is not None})
            told_rows = [{"pipeline": pipeline, "proof": proof, **asdict(item)} for item in completions]
            connection.execute(insert(_completions), told_rows)
    changed = [item for value, item in rows.items() if before.get(value) != item]
    names = [name for name in PartitionRow.__dataclass_fields__ if name != "value"]
    stored = [{"pipeline": pipeline, **asdict(item)} | _names(item) for item in changed]
    upsert(connection, _partitions, stored, names)
    values = {"folded": folded, "passed": passed, "losses": _bounded(losses) or None}
    connection.execute(update(_pipelines).where(table.name == pipeline).values(values))
    return Folded(completions, has_more)


def last_number(connection: Connection, pipeline: str) -> int:
    """The number of the newest completion; 0: there is none."""
    number = _completions.c.number
    query = select(number).where(_completions.c.pipeline == pipeline).order_by(number.desc()).limit(1)
    return int(connection.execute(query).scalar() or 0)


def announced(connection: Connection, pipeline: str, by: str) -> int:
    """The number of the newest completion that is known to be announced `by` an asset, or a task; 0: none is."""
    query = select(_pipelines.c.announced).where(_pipelines.c.name == pipeline)
    return int((connection.execute(query).scalar() or {}).get(by, 0))


def announce(connection: Connection, pipeline: str, by: str, number: int) -> None:
    """Keeps that the completions up to a number are announced, on a connection of a writing transaction."""
    reads.lock_pipeline(connection, pipeline)
    is_it = _pipelines.c.name == pipeline
    numbers = connection.execute(select(_pipelines.c.announced).where(is_it)).scalar() or {}
    connection.execute(update(_pipelines).where(is_it).values(announced={**numbers, by: number}))


def completions(connection: Connection, pipeline: str, after: int, until: int) -> list[Completion]:
    """The completions with numbers (after, until], in order.

    Args:
        connection: to the ledger.
        pipeline: its name.
        after: the number before the first of them.
        until: the number of the last of them.
    """
    number = _completions.c.number
    query = select(*_COMPLETION).where(_completions.c.pipeline == pipeline, number > after, number <= until)
    return [Completion(*row) for row in connection.execute(query.order_by(number))]


def proof(connection: Connection, pipeline: str, number: int) -> dict[int, int]:
    """By shard the cursor up to which all was committed when a partition became complete."""
    table = _completions.c
    query = select(table.proof).where(table.pipeline == pipeline, table.number == number)
    content = connection.execute(query).scalar()
    return {} if content is None else {int(id_): end for id_, end in json.loads(zlib.decompress(content)).items()}


def completions_of(connection: Connection, pipeline: str, value: str, most: int) -> list[Completion]:
    """The newest times that a partition became complete, the newest first.

    Args:
        connection: to the ledger.
        pipeline: its name.
        value: the partition's.
        most: how many at most.
    """
    query = select(*_COMPLETION).where(_completions.c.pipeline == pipeline, _completions.c.value == value)
    return [Completion(*row) for row in connection.execute(query.order_by(_completions.c.number.desc()).limit(most))]


def newest_begin(connection: Connection, pipeline: str, before: int) -> int | None:
    """When the newest partition begins of those that begin before then, in unix seconds; None where there is none."""
    query = select(func.max(_partitions.c.begin)).where(_partitions.c.pipeline == pipeline)
    begin: int | None = connection.execute(query.where(_partitions.c.begin < before)).scalar()
    return begin


def partitions(connection: Connection, pipeline: str, since: int, until: int) -> list[PartitionRow]:
    """The partitions that begin within [since, until), in order.

    Args:
        connection: to the ledger.
        pipeline: its name.
        since: unix seconds.
        until: unix seconds.
    """
    begin = _partitions.c.begin
    rows = _rows(connection, pipeline, begin >= since, begin < until)
    return sorted(rows.values(), key=lambda item: item.begin)


def progress(connection: Connection, pipeline: str) -> tuple[int | None, int | None]:
    """The watermark, see `planning.watermark`, and the service's time of the newest look; None where not known."""
    query = select(_pipelines.c.looked).where(_pipelines.c.name == pipeline)
    looked = connection.execute(query).scalar()
    return None if looked is None else watermark(_shards(connection, pipeline).values(), looked), looked


def began(connection: Connection, pipeline: str) -> int | None:
    """All that the service received since then (unix seconds) is the pipeline's; None before its first look."""
    query = select(_pipelines.c.began).where(_pipelines.c.name == pipeline)
    moment: int | None = connection.execute(query).scalar()
    return moment


def start(connection: Connection, pipeline: str) -> str | None:
    """The file's `source.start` of when the pipeline began; None before its first look."""
    query = select(_pipelines.c.start).where(_pipelines.c.name == pipeline)
    position: str | None = connection.execute(query).scalar()
    return position


def _commit(
    connection: Connection,
    pipeline: str,
    periods: Periods,
    prefix: str,
    since: int | None,
    rows: dict[str, PartitionRow],
    losses: list[Loss],
    folded: int,
    looked: int,
) -> tuple[int, bool]:
    """Folds commits into `rows` and `losses`; returns the place of the last one, and whether there may be more."""
    table = _transactions.c
    query = select(table.id, table.place, table.kind, table.partitions, table.changed)
    query = query.where(table.pipeline == pipeline, table.place > folded).order_by(table.place).limit(_COMMITS)
    commits = connection.execute(query).all()
    written = [
        (period, count, commit)
        for commit in commits
        for path, count in (commit.partitions or {}).items()
        if (period := periods.of(path.removeprefix(prefix))) is not None
    ]
    rows |= _named(connection, pipeline, {period.value for period, *_ in written} - rows.keys())
    gaps = select(_ranges.c.transaction_id, func.count()).where(_ranges.c.transaction_id.in_(reads.SOME), _ranges.c.gap)
    gaps = gaps.group_by(_ranges.c.transaction_id)
    counts: dict[str, int] = {}
    for part in reads.parts([item.id for item in commits]):
        counts.update((id_, count) for id_, count in connection.execute(gaps, part))
    # The ledger's clock may be behind the service's, which looked at these logs before they were given up.
    lost_before = [(item.id, max(int(item.changed.timestamp()) + 1, looked)) for item in commits]
    new_losses = [Loss(before, counts[id_]) for id_, before in lost_before if id_ in counts]
    losses += new_losses
    new_rows = _new((period for period, *_ in written if period.value not in rows), since, losses)
    rows |= new_rows
    for period, count, commit in written:
        # By the file's calendar of now: a value names another time since its zone was changed.
        item = replace(rows[period.value], begin=period.begin, end=period.end)
        rows[period.value] = item.written(count, commit.place, Kind(commit.kind), looked)
    if unknown := [commit for commit in commits if commit.partitions is None]:
        # It may have written to any of them: a rebuilt ledger has no times of its logs.
        place, kind = unknown[-1].place, Kind(unknown[-1].kind)
        complete = _rows(connection, pipeline, _partitions.c.state == PartitionState.COMPLETE.value)
        rows |= {value: item.reopened(place, kind, looked) for value, item in complete.items() if value not in rows}
    rows |= {
        value: _lost(item, new_losses) for value, item in rows.items() if item.is_awaited and value not in new_rows
    }
    return commits[-1].place if commits else folded, len(commits) == _COMMITS


def _new(periods: Iterable[Period], since: int | None, losses: Sequence[Loss]) -> dict[str, PartitionRow]:
    """Partitions that are not there yet, with the losses since these began."""
    return {period.value: _lost(PartitionRow.empty(period, since), losses) for period in periods}


def _bounded(losses: Iterable[Loss]) -> list[Loss]:
    in_order = sorted(losses)
    older = in_order[:-_LOSSES]
    return [*([Loss(older[-1].before, sum(loss.ranges for loss in older))] if older else ()), *in_order[-_LOSSES:]]


def _lost(item: PartitionRow, losses: Iterable[Loss]) -> PartitionRow:
    return item.lost(sum(loss.ranges for loss in losses if loss.before > item.begin))


def _is_under_way(connection: Connection, pipeline: str, acts: Sequence[str]) -> bool:
    """Whether a backfill or a replay is: a batch of one, or an act of a person that has not ended."""
    kinds = {item.kind for item in reads.live(connection, pipeline)}
    deeds = models.deeds.c
    query = select(deeds.id).where(deeds.pipeline == pipeline, deeds.act.in_(acts), deeds.result.is_(None))
    query = query.where(deeds.at > now(connection) - _ACT_HOLDS)
    return bool(kinds - {Kind.TAIL}) or connection.execute(query.limit(1)).first() is not None


def _shards(connection: Connection, pipeline: str) -> dict[int, ShardState]:
    """What is known of each shard but those that are gone, of whose end nothing is known."""
    table = models.shards.c
    query = select(table.shard, table.marks).where(table.pipeline == pipeline)
    marks_of = {shard: [Mark(*mark) for mark in marks or ()] for shard, marks in connection.execute(query)}
    covered = by_shard(reads.coverage(connection, pipeline))
    return {
        item.id: ShardState(
            item.first,
            item.end if item.end_known else None,
            covered.get(item.id, []),
            marks_of[item.id],
            item.status == LATE,
        )
        for item in reads.shards(connection, pipeline)
        if item.status != GONE or item.end is not None
    }


def _named(connection: Connection, pipeline: str, values: Collection[str]) -> dict[str, PartitionRow]:
    """The partitions of some values."""
    rows: dict[str, PartitionRow] = {}
    for part in reads.parts(sorted(values)):
        rows |= _rows(connection, pipeline, _partitions.c.value.in_(reads.SOME), **part)
    return rows


def _rows(connection: Connection, pipeline: str, *which: ColumnElement[bool], **values: Any) -> dict[str, PartitionRow]:
    query = select(*_PARTITION).where(_partitions.c.pipeline == pipeline, *which)
    return {row.value: _row(row) for row in connection.execute(query, values)}


def _row(row: Any) -> PartitionRow:
    return PartitionRow(**{**row._mapping, "state": PartitionState(row.state), "kind": Kind(row.kind)})


def _names(item: PartitionRow) -> dict[str, str]:
    return {"state": item.state.value, "kind": item.kind.value}


def _packed(value: Mapping[int, int]) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())
