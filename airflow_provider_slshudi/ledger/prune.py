"""Makes the history of old batches small, on a connection; nothing that a proof needs goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, exists, func, insert, select

from airflow_provider_slshudi.ledger import models, packing, reads
from airflow_provider_slshudi.ledger.records import Pruned
from airflow_provider_slshudi.ledger.states import LIVE, State
from airflow_provider_slshudi.ledger.transactions import note

NEWEST = 1_000
"""How many transactions of each pipeline stay whole however old they are: pages and plans look at the newest ones."""
PRUNED = "pruned"
"""Name of the event that takes the place of all others."""
_AT_ONCE = 100


def prune(connection: Connection, pipeline: str, before: datetime, after: str) -> Pruned:
    """See `Ledger.prune`."""
    # Nobody compares coverage and ranges under this lock meanwhile, and no commit adds to them.
    reads.lock_pipeline(connection, pipeline)
    found = _old(connection, pipeline, before, after)
    ids, committed = [id_ for id_, _ in found], {id_ for id_, state in found if state == State.COMMITTED.value}
    packed = _pack(connection, committed)
    aborted = [id_ for id_ in ids if id_ not in committed]
    dropped = connection.execute(delete(models.ranges).where(models.ranges.c.transaction_id.in_(aborted))).rowcount
    events = _forget_events(connection, ids)
    for id_ in ids:
        note(connection, id_, PRUNED, {"events": events[id_], "packed ranges": packed[id_]})
    last = ids[-1] if len(ids) == _AT_ONCE else None
    return Pruned(len(ids), events.total(), packed.total() + dropped, last)


def _old(connection: Connection, pipeline: str, before: datetime, after: str) -> list[tuple[str, str]]:
    of, events = models.transactions.c, models.events.c
    newest = select(of.id).where(of.pipeline == pipeline).order_by(of.id.desc()).offset(NEWEST - 1).limit(1)
    first_whole = connection.execute(newest).scalar()
    if first_whole is None:
        return []
    whole = exists().where(events.transaction_id == of.id, events.what != PRUNED)
    query = select(of.id, of.state).where(of.pipeline == pipeline, of.id > after, of.id < first_whole, whole)
    query = query.where(of.state.not_in([state.value for state in LIVE]), of.changed < before)
    return [(row.id, row.state) for row in connection.execute(query.order_by(of.id).limit(_AT_ONCE))]


def _pack(connection: Connection, ids: set[str]) -> Counter[str]:
    """Packs these transactions' ranges but gaps, which are few and are looked for; how many of each."""
    table = models.ranges
    mine = (table.c.transaction_id.in_(sorted(ids)), table.c.gap.is_(False))
    ranges = defaultdict(list)
    for row in connection.execute(select(table).where(*mine)):
        ranges[row.transaction_id].append(row)
    if ranges:
        rows = [{"transaction_id": id_, "content": packing.pack(found)} for id_, found in ranges.items()]
        connection.execute(insert(models.packed), rows)
        connection.execute(delete(table).where(*mine))
    return Counter({id_: len(found) for id_, found in ranges.items()})


def _forget_events(connection: Connection, ids: Sequence[str]) -> Counter[str]:
    table = models.events
    mine = table.c.transaction_id.in_(ids)
    counts = select(table.c.transaction_id, func.count()).where(mine).group_by(table.c.transaction_id)
    found = Counter({id_: number for id_, number in connection.execute(counts)})
    connection.execute(delete(table).where(mine))
    return found
