"""Questions to the ledger on a connection, and old batches as the packed rows that keep them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    LargeBinary,
    Row,
    Select,
    bindparam,
    literal,
    null,
    select,
    type_coerce,
    union_all,
    update,
)

from airflow_provider_slshudi.exceptions import LedgerError
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.records import (
    LIVE,
    Event,
    Kind,
    LedgerPipeline,
    LedgerShard,
    Past,
    RangeTotals,
    RecordedRange,
    State,
    Transaction,
)
from airflow_provider_slshudi.planning.ranges import Density, Range


class StoredRange(NamedTuple):
    """A range as its table keeps it; see `records.RangeTotals`."""

    transaction_id: str
    shard: int
    begin_cursor: int
    end_cursor: int
    gap: bool
    rows: int | None
    bytes: int | None
    first_time: int | None
    last_time: int | None
    filtered: int | None


_KEPT = ("shard", "begin_cursor", "end_cursor", "rows", "bytes", "first_time", "last_time", "filtered")


def pack_ranges(ranges: Sequence[Row[Any] | StoredRange]) -> bytes:
    """Ranges of one transaction, none of them a gap."""
    ordered = sorted(ranges, key=lambda row: (row.shard, row.begin_cursor))
    # Alike stands beside alike, and an end beside its begin is short.
    columns = {name: [getattr(row, name) for row in ordered] for name in _KEPT}
    columns["end_cursor"] = [row.end_cursor - row.begin_cursor for row in ordered]
    return _pack(columns)


def unpack_ranges(transaction: str, content: bytes) -> list[StoredRange]:
    """What was packed, sorted."""
    columns = _unpack(content)
    return [
        StoredRange(transaction, shard, begin, begin + length, False, *read)
        for shard, begin, length, *read in zip(*(columns[name] for name in _KEPT), strict=True)
    ]


def pack_events(events: Sequence[Row[Any]]) -> bytes:
    """Events of one transaction, in order."""
    return _pack([(event.at.isoformat(), event.what, event.detail) for event in events])


def unpack_events(transaction: str, content: bytes) -> list[Event]:
    """What was packed, in order."""
    return [
        Event(transaction, datetime.fromisoformat(timestamp), what, detail)
        for timestamp, what, detail in _unpack(content)
    ]


def _pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def _unpack(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


# The most values of one statement; a timeline that is never archived may have more.
_VALUES = 10_000
_PACKED_AT_ONCE = 100
_WRITTEN = [State.PREPARED.value, State.COMMITTED.value]
_NO_CONTENT: ColumnElement[Any] = type_coerce(null(), LargeBinary())
_PLANNED_BEFORE = timedelta(days=1)
SOME: BindParameter[Any] = bindparam("some", expanding=True)
AIRFLOW = "airflow"
"""The event that names the Airflow of a transaction's run."""
ID_TIME = "%Y%m%dT%H%M%S%f"
"""How a transaction's id begins: the time of its plan (UTC)."""
_transactions = models.transactions
_ranges = models.ranges
_shards = models.shards


def pipelines(connection: Connection) -> list[LedgerPipeline]:
    """All registered pipelines by name."""
    table = models.pipelines
    query = select(table.c.name, table.c.source, table.c.base_path).order_by(table.c.name)
    return [LedgerPipeline(*row) for row in connection.execute(query)]


def lock_pipeline(connection: Connection, pipeline: str) -> None:
    """Makes this SQL transaction the only one that plans or covers ranges of the pipeline (SQLite: that writes).

    Raises:
        LedgerError: the pipeline is not registered.
    """
    require_known(connection, pipeline, lock=True)


def require_known(connection: Connection, pipeline: str, lock: bool = False) -> None:
    """Raises LedgerError if the pipeline is not registered."""
    query = select(models.pipelines.c.name).where(models.pipelines.c.name == pipeline)
    if connection.execute(query.with_for_update() if lock else query).first() is None:
        raise LedgerError(f"the ledger knows no pipeline {pipeline}; register it first", pipeline=pipeline)


def find(connection: Connection, id: str) -> Transaction | None:
    """The transaction, None where the ledger surely has none."""
    return next(iter(transactions_of(connection, select(_transactions).where(_transactions.c.id == id))), None)


def get(connection: Connection, id: str) -> Transaction:
    """The transaction, or LedgerError."""
    transaction = find(connection, id)
    if transaction is None:
        raise LedgerError(f"the ledger knows no transaction {id}", transaction=id)
    return transaction


def live(connection: Connection, pipeline: str) -> list[Transaction]:
    """Transactions that are neither committed nor aborted, oldest first."""
    # Sorted here: with ORDER BY, SQLite walks the whole history by id instead of looking up the states.
    return sorted(
        transactions_of(connection, select(_transactions).where(*_is_live(pipeline))), key=lambda found: found.id
    )


def has_written(connection: Connection, pipeline: str) -> bool:
    """Whether a transaction of the pipeline is committed, or has an instant on the table and is not aborted."""
    states = [state.value for state in State if state not in (State.PLANNED, State.ABORTED)]
    query = select(_transactions.c.id).where(_transactions.c.pipeline == pipeline, _transactions.c.state.in_(states))
    return connection.execute(query.limit(1)).first() is not None


def last(
    connection: Connection, pipeline: str, limit: int, state: State | None = None, since: datetime | None = None
) -> list[Transaction]:
    """The newest transactions, newest first. Their manifests, which may be large, are left out (None).

    With `since`, of those that changed since then, and were planned at most a day before it.
    """
    columns = [column if column.name != "manifest" else literal(None).label("manifest") for column in _transactions.c]
    query = select(*columns).where(_transactions.c.pipeline == pipeline)
    if state is not None:
        query = query.where(_transactions.c.state == state.value)
    if since is not None:
        query = query.where(*_changed_since(since))
    return transactions_of(connection, query.order_by(_transactions.c.id.desc()).limit(limit))


def history(connection: Connection, pipeline: str, limit: int, before: str | None = None) -> list[Past]:
    """The newest transactions, or those older than `before`, newest first, with manifests and events."""
    query = select(_transactions).where(_transactions.c.pipeline == pipeline)
    if before is not None:
        query = query.where(_transactions.c.id < before)
    transactions = transactions_of(connection, query.order_by(_transactions.c.id.desc()).limit(limit))
    events_by_id = _events(connection, [item.id for item in transactions])
    return [Past(item, events_by_id[item.id]) for item in transactions]


def by_instant(connection: Connection, pipeline: str, instant: str) -> Transaction | None:
    """The transaction that opened `instant`."""
    query = select(_transactions).where(_transactions.c.pipeline == pipeline, _transactions.c.instant == instant)
    return next(iter(transactions_of(connection, query)), None)


def of_run(connection: Connection, pipeline: str, dag_id: str, run_id: str, airflow: str) -> Transaction | None:
    """The newest transaction that a DAG run planned.

    Args:
        pipeline: the pipeline's name.
        dag_id: the run's DAG.
        run_id: the run.
        airflow: the name of its Airflow; where none has that name, one without a name counts, which a rebuild of
            the ledger leaves.
    """
    query = select(_transactions).where(_transactions.c.run_id == run_id, _transactions.c.dag_id == dag_id)
    query = query.where(_transactions.c.pipeline == pipeline).order_by(_transactions.c.id.desc())
    transactions = {item.id: item for item in transactions_of(connection, query)}
    names = {id_: airflow_of(connection, id_) for id_ in transactions}
    own = [id_ for name in (airflow, "") for id_ in transactions if names[id_] == name]
    return transactions[own[0]] if own else None


def last_place(connection: Connection, pipeline: str) -> int:
    """The place of the newest commit that the ledger heard of, also of one that a rebuild found gone; 0: none yet."""
    table = models.pipelines.c
    return int(connection.execute(select(table.places).where(table.name == pipeline)).scalar() or 0)


def set_last_place(connection: Connection, pipeline: str, place: int) -> None:
    """Sets it, in a writing transaction that has locked the pipeline."""
    table = models.pipelines
    connection.execute(update(table).where(table.c.name == pipeline).values(places=place))


def last_shard(connection: Connection, pipeline: str, kind: Kind) -> int | None:
    """The shard where the newest transaction of this kind ends; None where there is none."""
    newest = select(_transactions.c.id).where(_transactions.c.pipeline == pipeline, _transactions.c.kind == kind.value)
    newest = newest.order_by(_transactions.c.id.desc()).limit(1)
    id_ = connection.execute(newest).scalar()
    return None if id_ is None else max((row.shard for row in _range_rows(connection, id_)), default=None)


def committed_instants(connection: Connection, pipeline: str, instants: Sequence[str]) -> set[str]:
    """Which of these instants are committed transactions of the pipeline."""
    # Not by state: SQLite would then look up all committed transactions instead of these few instants.
    query = select(_transactions.c.instant, _transactions.c.state)
    query = query.where(_transactions.c.pipeline == pipeline, _transactions.c.instant.in_(SOME))
    rows = (row for part in parts(instants) for row in connection.execute(query, part))
    return {instant for instant, state in rows if state == State.COMMITTED.value}


def accepted(connection: Connection, pipeline: str) -> str:
    """The completion time last given to `accept`; empty where there was none."""
    table = models.pipelines
    return connection.execute(select(table.c.accepted).where(table.c.name == pipeline)).scalar() or ""


def latest_committed(connection: Connection, pipeline: str) -> Transaction | None:
    """The transaction with the latest completion time."""
    completed = _transactions.c.completed
    query = select(_transactions).where(_transactions.c.pipeline == pipeline, completed.is_not(None))
    return next(iter(transactions_of(connection, query.order_by(completed.desc()).limit(1))), None)


def ranges(connection: Connection, id: str) -> list[Range]:
    """The ranges of a transaction, sorted."""
    return [_range(row) for row in _range_rows(connection, id)]


def ranges_of(connection: Connection, ids: Sequence[str]) -> dict[str, list[Range]]:
    """The ranges of several transactions, each one's sorted; a transaction without any is not there."""
    ranges_by_id: dict[str, list[Range]] = {}
    for row in _range_rows(connection, *ids):
        ranges_by_id.setdefault(row.transaction_id, []).append(_range(row))
    return ranges_by_id


def totals(connection: Connection, id: str) -> list[RangeTotals]:
    """What was read from a transaction's ranges; none before PREPARED, none for gaps."""
    return [
        RangeTotals(_range(row), row.rows, row.bytes, row.first_time, row.last_time, row.filtered or 0)
        for row in _range_rows(connection, id)
        if row.rows is not None and row.bytes is not None
    ]


def coverage(connection: Connection, pipeline: str) -> list[Range]:
    """The committed ranges in as few intervals as possible, sorted."""
    return [Range(*row) for row in connection.execute(_coverage(pipeline))]


def coverage_of(connection: Connection, pipeline: str, shards: Iterable[int]) -> list[Range]:
    """The coverage of these shards alone, sorted."""
    query = _coverage(pipeline).where(models.coverage.c.shard.in_(SOME))
    return [Range(*row) for part in parts(sorted(shards)) for row in connection.execute(query, part)]


def reserved(connection: Connection, pipeline: str) -> list[Range]:
    """The ranges of live transactions, sorted."""
    query = select(_ranges).join(_transactions, _ranges.c.transaction_id == _transactions.c.id)
    query = query.where(*_is_live(pipeline)).order_by(_ranges.c.shard, _ranges.c.begin_cursor)
    return [_range(row) for row in connection.execute(query)]


def shards(connection: Connection, pipeline: str) -> list[LedgerShard]:
    """The saved shards by id."""
    table = _shards.c
    query = select(table.shard, table.status, table.hash_begin, table.hash_end, table.first, table.last_end)
    query = query.where(table.pipeline == pipeline).order_by(table.shard)
    return [LedgerShard(*row) for row in connection.execute(query)]


def density(connection: Connection, pipeline: str) -> dict[int, Density]:
    """Bytes and rows per log group of each saved shard that committed something; older batches count less."""
    table = _shards.c
    query = select(table.shard, table.bytes_per_group, table.rows_per_group)
    query = query.where(table.pipeline == pipeline, table.bytes_per_group.is_not(None))
    return {shard: Density(bytes_, rows) for shard, bytes_, rows in connection.execute(query)}


def gaps(connection: Connection, pipeline: str, since: datetime) -> list[tuple[str, Range]]:
    """The gaps that batches recorded, with the batch's id, oldest first: of those committed since then that were
    planned at most a day before.
    """
    table = _transactions.c
    query = select(_ranges).join(_transactions, _ranges.c.transaction_id == table.id).where(table.pipeline == pipeline)
    query = query.where(*_changed_since(since))
    query = query.where(table.state == State.COMMITTED.value, _ranges.c.gap).order_by(table.id, _ranges.c.shard)
    return [(row.transaction_id, _range(row)) for row in connection.execute(query)]


def _changed_since(since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Of transactions: ids begin with the time of the plan, so their index bounds the look; a commit may come later."""
    table = _transactions.c
    return table.id >= f"{since - _PLANNED_BEFORE:{ID_TIME}}", table.changed >= since


def events(connection: Connection, id: str) -> list[Event]:
    """What happened to a transaction, in order."""
    return _events(connection, [id])[id]


def airflow_of(connection: Connection, id: str) -> str:
    """The name of the Airflow that made a transaction's run; empty if unknown."""
    return next((event.detail for event in events(connection, id) if event.what == AIRFLOW), "")


def filters(connection: Connection, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The conditions by which logs of some transactions were left out; a transaction without one is not there."""
    table, stored_filters = _transactions.c, dict[str, Mapping[str, Any]]()
    query = select(table.id, table.filter).where(table.id.in_(SOME), table.filter.is_not(None))
    for some in parts(ids):
        stored_filters |= {row.id: row.filter for row in connection.execute(query, some)}
    return stored_filters


def recorded(connection: Connection, pipeline: str) -> list[RecordedRange]:
    """The ranges of PREPARED and COMMITTED transactions with their rows, sorted; reads the whole history."""
    table, old = _transactions.c, models.packed.c
    # One statement: a rebuild or a prune beside it moves ranges from one table to the other.
    query = union_all(
        select(table.id, table.state, table.instant, table.completed, *_ranges.c, _NO_CONTENT.label("content"))
        .join(_ranges, _ranges.c.transaction_id == table.id)
        .where(table.pipeline == pipeline, table.state.in_(_WRITTEN)),
        select(table.id, table.state, table.instant, table.completed, *(null() for _ in _ranges.c), old.ranges)
        .join(models.packed, old.transaction_id == table.id)
        .where(table.pipeline == pipeline, table.state.in_(_WRITTEN)),
    )
    recorded_ranges = [
        RecordedRange(_range(item), row.id, State(row.state), row.instant, row.completed, item.rows, item.filtered or 0)
        for row in connection.execute(query)
        for item in ([row] if row.content is None else unpack_ranges(row.id, row.content))
    ]
    return sorted(recorded_ranges, key=lambda item: item.range)


def packed(connection: Connection, pipeline: str) -> Iterator[StoredRange]:
    """The packed ranges of a pipeline's committed transactions, a transaction at a time."""
    table, transactions = models.packed.c, _transactions.c
    query = select(table.transaction_id, table.ranges).join(_transactions, table.transaction_id == transactions.id)
    query = query.where(transactions.pipeline == pipeline, transactions.state == State.COMMITTED.value)
    for id_, content in connection.execution_options(yield_per=_PACKED_AT_ONCE).execute(query):
        yield from unpack_ranges(id_, content)


def replays(connection: Connection, pipeline: str) -> list[Transaction]:
    """The pipeline's replays that were not aborted, oldest first."""
    query = select(_transactions).where(_transactions.c.pipeline == pipeline, _transactions.c.kind == Kind.REPLAY.value)
    return transactions_of(
        connection, query.where(_transactions.c.state != State.ABORTED.value).order_by(_transactions.c.id)
    )


def _events(connection: Connection, ids: Sequence[str]) -> dict[str, list[Event]]:
    """What happened to transactions, in order; what is packed came first."""
    table, old = models.events.c, models.packed.c
    columns = (table.id, table.transaction_id, table.at, table.what, table.detail)
    # One statement, as for ranges.
    query = union_all(
        select(*columns, _NO_CONTENT.label("content")).where(table.transaction_id.in_(SOME)),
        select(null(), old.transaction_id, null(), null(), null(), old.events).where(old.transaction_id.in_(SOME)),
    )
    rows = [row for part in parts(ids) for row in connection.execute(query, part)]
    events_by_id: dict[str, list[Event]] = {id_: [] for id_ in ids}
    for row in sorted(rows, key=lambda row: row.id or 0):
        events_by_id[row.transaction_id] += (
            [Event(row.transaction_id, row.at, row.what, row.detail)]
            if row.content is None
            else unpack_events(row.transaction_id, row.content)
        )
    return events_by_id


def _coverage(pipeline: str) -> Select[Any]:
    table = models.coverage.c
    query = select(table.shard, table.begin_cursor, table.end_cursor).where(table.pipeline == pipeline)
    return query.order_by(table.shard, table.begin_cursor)


def parts(values: Sequence[Any]) -> Iterator[dict[str, Sequence[Any]]]:
    """Values of `SOME`, as many as one statement takes."""
    return ({"some": list(values[first : first + _VALUES])} for first in range(0, len(values), _VALUES))


def _is_live(pipeline: str) -> tuple[Any, Any]:
    return _transactions.c.pipeline == pipeline, _transactions.c.state.in_([state.value for state in LIVE])


def transactions_of(connection: Connection, query: Select[Any]) -> list[Transaction]:
    """The transactions of a query for all their columns."""
    fields = (dict(row) for row in connection.execute(query).mappings())
    return [Transaction(**(row | {"kind": Kind(row["kind"]), "state": State(row["state"])})) for row in fields]


def _range_rows(connection: Connection, *ids: str) -> list[Row[Any] | StoredRange]:
    old, (id_, *others) = models.packed.c, _ranges.c
    query = union_all(
        select(id_, *others, _NO_CONTENT.label("content")).where(id_.in_(SOME)),
        select(old.transaction_id, *(null() for _ in others), old.ranges).where(old.transaction_id.in_(SOME)),
    )
    rows: list[Row[Any] | StoredRange] = []
    for row in (row for part in parts(ids) for row in connection.execute(query, part)):
        rows += [row] if row.content is None else unpack_ranges(row.transaction_id, row.content)
    return sorted(rows, key=lambda row: (row.shard, row.begin_cursor))


def _range(row: Row[Any] | StoredRange) -> Range:
    return Range(row.shard, row.begin_cursor, row.end_cursor, row.gap)
