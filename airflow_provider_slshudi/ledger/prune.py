"""Makes the history of old batches small, on a connection; nothing of it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, insert, select

from airflow_provider_slshudi.ledger import models, packing, reads
from airflow_provider_slshudi.ledger.records import Pruned
from airflow_provider_slshudi.ledger.states import LIVE

NEWEST = 1_000
"""How many transactions of each pipeline stay as they are however old: pages and plans look at the newest ones."""
_LIVE = [state.value for state in LIVE]
_TRANSACTIONS = 100
_RANGES = 5_000
"""The most ranges of one step, unless one transaction has more: others wait meanwhile."""


def old(connection: Connection, pipeline: str, before: datetime, after: str) -> dict[str, int]:
    """The next transactions to prune, with the number of their ranges, by id; few enough for one step."""
    of, packed = models.transactions.c, models.packed.c
    newest = select(of.id).where(of.pipeline == pipeline).order_by(of.id.desc()).offset(NEWEST - 1).limit(1)
    first_whole = connection.execute(newest).scalar()
    if first_whole is None:
        return {}
    query = select(of.id).where(of.pipeline == pipeline, of.id > after, of.id < first_whole, of.changed < before)
    query = query.where(of.state.not_in(_LIVE))
    query = query.where(~exists().where(packed.transaction_id == of.id))
    ids = connection.execute(query.order_by(of.id).limit(_TRANSACTIONS)).scalars().all()
    ranges = models.ranges.c
    counts = select(ranges.transaction_id, func.count()).where(ranges.transaction_id.in_(ids))
    known = {id_: count for id_, count in connection.execute(counts.group_by(ranges.transaction_id))}
    chosen: dict[str, int] = {}
    for id_ in ids:
        if chosen and sum(chosen.values()) + known.get(id_, 0) > _RANGES:
            break
        chosen[id_] = known.get(id_, 0)
    return chosen


def prune(connection: Connection, pipeline: str, before: datetime, chosen: Mapping[str, int]) -> Pruned:
    """Packs these transactions, of which a rebuild may have taken some meanwhile."""
    # Nobody compares coverage and ranges under this lock, rebuilds, or prunes beside.
    reads.lock_pipeline(connection, pipeline)
    of, packed = models.transactions.c, models.packed.c
    query = select(of.id).where(of.id.in_(chosen), of.changed < before, of.state.not_in(_LIVE))
    query = query.where(~exists().where(packed.transaction_id == of.id)).order_by(of.id)
    ids = connection.execute(query).scalars().all()
    if ids:
        ranges, events = _ranges(connection, ids), _events(connection, ids)
        rows = [
            {
                "transaction_id": id_,
                "ranges": packing.pack_ranges(ranges[id_]),
                "events": packing.pack_events(events[id_]),
            }
            for id_ in ids
        ]
        connection.execute(insert(models.packed), rows)
        connection.execute(delete(models.ranges).where(*_but_gaps(ids)))
        # Those alone that were read: anybody may tell of a transaction meanwhile.
        for part in reads.parts([row.id for found in events.values() for row in found]):
            connection.execute(delete(models.events).where(models.events.c.id.in_(reads.SOME)), part)
        return Pruned(len(ids), sum(map(len, events.values())), sum(map(len, ranges.values())), max(chosen))
    return Pruned(0, 0, 0, max(chosen))


def _ranges(connection: Connection, ids: Sequence[str]) -> Mapping[str, list[Row[Any]]]:
    found = defaultdict(list)
    for row in connection.execute(select(models.ranges).where(*_but_gaps(ids))):
        found[row.transaction_id].append(row)
    return found


def _events(connection: Connection, ids: Sequence[str]) -> Mapping[str, list[Row[Any]]]:
    table, found = models.events, defaultdict(list)
    for row in connection.execute(select(table).where(table.c.transaction_id.in_(ids)).order_by(table.c.id)):
        found[row.transaction_id].append(row)
    return found


def _but_gaps(ids: Sequence[str]) -> tuple[Any, Any]:
    """Gaps are few, and are looked for."""
    return models.ranges.c.transaction_id.in_(ids), models.ranges.c.gap.is_(False)
