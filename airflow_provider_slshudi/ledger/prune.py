"""Makes the history of old batches small, on a connection; nothing of it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, insert, select

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.records import LIVE, Pruned

NEWEST = 1_000
"""How many transactions of each pipeline stay as they are however old: pages and plans look at the newest ones."""
_TRANSACTIONS = 100
_RANGES = 5_000
"""The most ranges of one step, unless one transaction has more: others wait meanwhile."""


_EVENTS = 100
"""How many events one statement deletes."""


def old(connection: Connection, pipeline: str, before: datetime, after: str) -> list[str]:
    """The next transactions to prune, by id; few enough for one step.

    Args:
        connection: of a transaction of the ledger's database.
        pipeline: its name.
        before: transactions that changed since stay.
        after: the id of the last one that was pruned.
    """
    table, ranges = models.transactions.c, models.ranges.c
    newest = select(table.id).where(table.pipeline == pipeline).order_by(table.id.desc()).offset(NEWEST - 1).limit(1)
    first_whole = connection.execute(newest).scalar()
    if first_whole is None:
        return []
    ids = _whole(connection, before, table.pipeline == pipeline, table.id > after, table.id < first_whole)
    counts = select(ranges.transaction_id, func.count()).where(ranges.transaction_id.in_(ids))
    range_counts = {id_: count for id_, count in connection.execute(counts.group_by(ranges.transaction_id))}
    sums = accumulate(range_counts.get(id_, 0) for id_ in ids)
    return [id_ for id_, sum_ in zip(ids, sums, strict=True) if id_ == ids[0] or sum_ <= _RANGES]


def prune(connection: Connection, pipeline: str, before: datetime, chosen: Sequence[str]) -> Pruned:
    """Packs these transactions, of which a rebuild may have taken some meanwhile.

    Args:
        connection: of a writing transaction.
        pipeline: its name.
        before: transactions that changed since stay.
        chosen: ids, as `old` gave them.
    """
    # No process compares coverage and ranges under this lock, rebuilds, or prunes beside.
    reads.lock_pipeline(connection, pipeline)
    ids = _whole(connection, before, models.transactions.c.id.in_(chosen))
    if not ids:
        return Pruned(0, 0, 0, chosen[-1])
    of_range, of_event = models.ranges.c, models.events.c
    # Gaps stay rows: they are few, and are looked for.
    packable = (of_range.transaction_id.in_(ids), of_range.gap.is_(False))
    ranges = connection.execute(select(models.ranges).where(*packable)).all()
    event_query = select(models.events).where(of_event.transaction_id.in_(ids)).order_by(of_event.id)
    events = connection.execute(event_query).all()
    ranges_of, events_of = _by_transaction(ranges), _by_transaction(events)
    rows = [
        {
            "transaction_id": id_,
            "ranges": reads.pack_ranges(ranges_of[id_]),
            "events": reads.pack_events(events_of[id_]),
        }
        for id_ in ids
    ]
    connection.execute(insert(models.packed), rows)
    connection.execute(delete(models.ranges).where(*packable))
    # Those alone that were read: any process may tell of a transaction meanwhile. Few at once: for many of a small
    # table MySQL passes all rows, and waits for those that others have not committed.
    for first in range(0, len(events), _EVENTS):
        part = [event.id for event in events[first : first + _EVENTS]]
        connection.execute(delete(models.events).where(of_event.id.in_(part)))
    return Pruned(len(ids), len(events), len(ranges), chosen[-1])


def _whole(connection: Connection, before: datetime, *which: ColumnElement[bool]) -> Sequence[str]:
    """Those of some transactions that ended before then and are not packed, the oldest first."""
    table = models.transactions.c
    query = select(table.id).where(*which, table.changed < before, table.state.not_in([state.value for state in LIVE]))
    query = query.where(~exists().where(models.packed.c.transaction_id == table.id))
    return connection.execute(query.order_by(table.id).limit(_TRANSACTIONS)).scalars().all()


def _by_transaction(rows: Iterable[Row[Any]]) -> Mapping[str, list[Row[Any]]]:
    rows_by_transaction = defaultdict(list)
    for row in rows:
        rows_by_transaction[row.transaction_id].append(row)
    return rows_by_transaction
