"""Which partitions of event times are complete, on a connection: what looks and commits told, folded in order."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import (
    GONE,
    Completion,
    Kind,
    PartitionRow,
    PartitionState,
)
from airflow_provider_slshudi.planning.periods import Period, Periods
from airflow_provider_slshudi.planning.ranges import by_shard
from airflow_provider_slshudi.planning.watermark import Mark, ShardState, kept, watermark

_COMMITS, _PERIODS = 500, 1_000
"""The most commits that one fold takes, and partitions without a commit that it adds."""
_ACT_HOLDS = timedelta(days=1)
"""How long an act that did not end holds up the partitions that it writes to."""
_pipelines, _partitions, _completions = models.pipelines, models.partitions, models.completions
_transactions, _ranges = models.transactions, models.ranges


class Folded(NamedTuple):
    """What a fold completed, and whether it is to be called again."""

    completions: list[Completion]
    has_more: bool


_PARTITION = models.columns(_partitions, PartitionRow)
_COMPLETION = models.columns(_completions, Completion)


def save_look(connection: Connection, pipeline: str, looked: int, marks: Mapping[int, Sequence[Mark]]) -> None:
    """Keeps what a look at the service's shards told of receive times.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        looked: the service's time before it listed its shards, in unix seconds.
        marks: of saved shards, by id.
    """
    reads.lock_pipeline(connection, pipeline)
    table = models.shards
    for shard, state in _shards(connection, pipeline).items():
        content = [list(mark) for mark in kept(state, marks.get(shard, ()))]
        if content != [list(mark) for mark in state.marks]:
            of_shard = (table.c.pipeline == pipeline) & (table.c.shard == shard)
            connection.execute(update(table).where(of_shard).values(marks=content))
    is_newer = func.coalesce(_pipelines.c.looked, 0) < looked
    connection.execute(update(_pipelines).where(_pipelines.c.name == pipeline, is_newer).values(looked=looked))


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
    query = select(_pipelines.c.looked, _pipelines.c.folded).where(_pipelines.c.name == pipeline)
    looked, folded = connection.execute(query).one()
    awaited = [state.value for state in PartitionState if state is not PartitionState.COMPLETE]
    rows = _rows(connection, pipeline, _partitions.c.state.in_(awaited))
    before = dict(rows)
    folded, has_more = _commit(connection, pipeline, periods, prefix, since, rows, folded or 0, looked or 0)
    shards = _shards(connection, pipeline)
    mark = watermark(shards.values(), looked)
    completions: list[Completion] = []
    # Not before all commits are folded: a later one may have written to what would be complete.
    if mark is not None and not has_more:
        for period in _passed(connection, pipeline, periods, rows, mark - lateness):
            rows.setdefault(period.value, PartitionRow.empty(period, since))
        waits = _is_under_way(connection, pipeline, acts)
        last, moment = last_number(connection, pipeline), now(connection)
        done = [item for item in rows.values() if item.is_complete(mark, lateness)]
        done = [item for item in done if item.kind is Kind.TAIL or not waits]
        for number, item in enumerate(sorted(done, key=lambda item: item.begin), last + 1):
            rows[item.value] = complete = item.complete(moment)
            told = complete.value, complete.times, folded, complete.rows, complete.gaps
            completions.append(Completion(number, *told, mark, moment))
        if completions:
            proof = _packed({id_: state.proof.cursor for id_, state in shards.items() if state.proof is not None})
            told_rows = [{"pipeline": pipeline, "proof": proof, **asdict(item)} for item in completions]
            connection.execute(insert(_completions), told_rows)
    changed = [item for value, item in rows.items() if before.get(value) != item]
    names = [name for name in PartitionRow.__dataclass_fields__ if name not in ("value", "begin", "end")]
    stored = [{"pipeline": pipeline, **asdict(item)} | _names(item) for item in changed]
    upsert(connection, _partitions, stored, names)
    connection.execute(update(_pipelines).where(_pipelines.c.name == pipeline).values(folded=folded))
    return Folded(completions, has_more)


def last_number(connection: Connection, pipeline: str) -> int:
    """The number of the newest completion; 0: there is none."""
    query = select(func.max(_completions.c.number)).where(_completions.c.pipeline == pipeline)
    return int(connection.execute(query).scalar() or 0)


def completions(connection: Connection, pipeline: str, after: int, until: int) -> list[Completion]:
    """The completions with numbers (after, until], in order."""
    number = _completions.c.number
    query = select(*_COMPLETION).where(_completions.c.pipeline == pipeline, number > after, number <= until)
    return [Completion(*row) for row in connection.execute(query.order_by(number))]


def proof(connection: Connection, pipeline: str, number: int) -> dict[int, int]:
    """By shard the cursor up to which all was committed when a partition became complete."""
    table = _completions.c
    query = select(table.proof).where(table.pipeline == pipeline, table.number == number)
    content = connection.execute(query).scalar()
    return {} if content is None else {int(id_): end for id_, end in json.loads(zlib.decompress(content)).items()}


def partitions(connection: Connection, pipeline: str, since: int, until: int) -> list[PartitionRow]:
    """The partitions that begin within [since, until), unix seconds, in order."""
    begin = _partitions.c.begin
    rows = _rows(connection, pipeline, begin >= since, begin < until)
    return sorted(rows.values(), key=lambda item: item.begin)


def progress(connection: Connection, pipeline: str) -> tuple[int | None, int | None]:
    """The watermark, see `planning.watermark`, and the service's time of the newest look; None where not known."""
    query = select(_pipelines.c.looked).where(_pipelines.c.name == pipeline)
    looked = connection.execute(query).scalar()
    return watermark(_shards(connection, pipeline).values(), looked), looked


def _commit(
    connection: Connection,
    pipeline: str,
    periods: Periods,
    prefix: str,
    since: int | None,
    rows: dict[str, PartitionRow],
    folded: int,
    looked: int,
) -> tuple[int, bool]:
    """Folds commits into `rows`; returns the place of the last one, and whether there may be more."""
    table = _transactions.c
    query = select(table.id, table.place, table.kind, table.partitions)
    query = query.where(table.pipeline == pipeline, table.place > folded).order_by(table.place).limit(_COMMITS)
    commits = connection.execute(query).all()
    written = [
        (period, count, commit)
        for commit in commits
        for path, count in (commit.partitions or {}).items()
        if (period := periods.of(path.removeprefix(prefix))) is not None
    ]
    values = {period.value for period, *_ in written} - rows.keys()
    for part in reads.parts(sorted(values)):
        rows |= _rows(connection, pipeline, _partitions.c.value.in_(reads.SOME), **part)
    gaps = select(func.count()).where(_ranges.c.transaction_id.in_(reads.SOME), _ranges.c.gap)
    lost = sum(connection.execute(gaps, part).scalar() or 0 for part in reads.parts([item.id for item in commits]))
    for period, count, commit in written:
        item = rows.get(period.value) or PartitionRow.empty(period, since)
        rows[period.value] = item.written(count, commit.place, Kind(commit.kind), looked)
    if unknown := [commit for commit in commits if commit.partitions is None]:
        # It may have written to any of them: a rebuilt ledger has no times of its logs.
        place, kind = unknown[-1].place, Kind(unknown[-1].kind)
        complete = _rows(connection, pipeline, _partitions.c.state == PartitionState.COMPLETE.value)
        rows |= {value: item.reopened(place, kind, looked) for value, item in complete.items() if value not in rows}
    if lost:
        rows |= {value: item.lost(lost) for value, item in rows.items() if item.is_awaited}
    return commits[-1].place if commits else folded, len(commits) == _COMMITS


def _passed(
    connection: Connection, pipeline: str, periods: Periods, rows: Mapping[str, PartitionRow], until: int
) -> list[Period]:
    """The periods that ended until then, behind the newest partition that has begun by then; none without any.

    At most the last `_PERIODS` of them: a log with a wrong time may be decades older than the next one.
    """
    query = select(func.max(_partitions.c.begin)).where(_partitions.c.pipeline == pipeline)
    begins = [item.begin for item in rows.values() if item.begin < until]
    begins += [
        begin for begin in connection.execute(query.where(_partitions.c.begin < until)).scalars() if begin is not None
    ]
    if not begins:
        return []
    longest = until - _PERIODS * periods.seconds
    return list(periods.ended(max(periods.at(max(begins)).end, longest), until))


def _is_under_way(connection: Connection, pipeline: str, acts: Sequence[str]) -> bool:
    """Whether a backfill or a replay is: a batch of one, or an act of a person that has not ended."""
    kinds = {item.kind for item in reads.live(connection, pipeline)}
    deeds = models.deeds.c
    query = select(deeds.id).where(deeds.pipeline == pipeline, deeds.act.in_(acts), deeds.result.is_(None))
    query = query.where(deeds.at > now(connection) - _ACT_HOLDS)
    return bool(kinds - {Kind.TAIL}) or connection.execute(query.limit(1)).first() is not None


def _shards(connection: Connection, pipeline: str) -> dict[int, ShardState]:
    """What is known of each shard but those that are gone, whose ends are accepted."""
    table = models.shards.c
    query = select(table.shard, table.marks).where(table.pipeline == pipeline)
    marks_of = {shard: [Mark(*mark) for mark in marks or ()] for shard, marks in connection.execute(query)}
    covered = by_shard(reads.coverage(connection, pipeline))
    return {
        item.id: ShardState(
            item.first, item.end if item.end_known else None, covered.get(item.id, []), marks_of[item.id]
        )
        for item in reads.shards(connection, pipeline)
        if item.status != GONE
    }


def _rows(connection: Connection, pipeline: str, *which: ColumnElement[bool], **values: Any) -> dict[str, PartitionRow]:
    query = select(*_PARTITION).where(_partitions.c.pipeline == pipeline, *which)
    return {row.value: _row(row) for row in connection.execute(query, values)}


def _row(row: Any) -> PartitionRow:
    return PartitionRow(**{**row._mapping, "state": PartitionState(row.state), "kind": Kind(row.kind)})


def _names(item: PartitionRow) -> dict[str, str]:
    return {"state": item.state.value, "kind": item.kind.value}


def _packed(value: Mapping[int, int]) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())
