"""Keys of logs that no column names, on a connection; a pipeline has a bounded number of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, select

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.engine import now
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import UnnamedCount, UnnamedKey
from airflow_provider_slshudi.ledger.transactions import note, plain

MOST = 1_000
"""The most keys of a pipeline; logs may have random ones."""
FORGOTTEN = timedelta(days=30)
"""Keys that no batch has seen for as long make room once a pipeline has `MOST`."""
_TOLD = 20
_NO_COLUMNS: Mapping[str, str] = {}
_keys = models.unnamed_keys
_KEY = [
    _keys.c[name]
    for name in ("pipeline", "key", "transaction_id", "first", "last", "logs", "looked", "examples", "kept_in")
]
_COUNTED = [column for column in _keys.c if column is not _keys.c.examples]


def has_any(connection: Connection, pipeline: str) -> bool:
    """Whether the pipeline has such keys."""
    return connection.execute(select(_keys.c.id).where(_keys.c.pipeline == pipeline).limit(1)).first() is not None


def save(
    connection: Connection,
    pipeline: str,
    transaction: str,
    looked: int,
    logs: Mapping[str, int],
    examples: Mapping[str, Sequence[str]],
    named: Container[str],
    values_kept: timedelta | None,
    kept_in: Mapping[str, str] = _NO_COLUMNS,
) -> list[UnnamedKey]:
    """See `Ledger.save_new_keys`.

    Args:
        connection: of a transaction of the ledger's database; all else as there.
    """
    # Two batches that see a new key at once: one of them tells it.
    reads.lock_pipeline(connection, pipeline)
    moment = now(connection)
    stored_rows = {row.id: row for row in connection.execute(select(*_COUNTED).where(_keys.c.pipeline == pipeline))}
    dropped_ids = {id_ for id_, row in stored_rows.items() if row.key in named}
    keys_by_id = {_id(key): key for key in logs if key not in named}
    new = [id_ for id_ in keys_by_id if id_ not in stored_rows]
    room = MOST - len(stored_rows) + len(dropped_ids)
    if len(new) > room:
        idle = [
            id_
            for id_, row in stored_rows.items()
            if row.last < moment - FORGOTTEN and id_ not in dropped_ids | keys_by_id.keys()
        ]
        leaving = sorted(idle, key=lambda id_: stored_rows[id_].last)[: len(new) - room]
        dropped_ids, room = dropped_ids.union(leaving), room + len(leaving)
        keys_by_id = {id_: key for id_, key in keys_by_id.items() if id_ not in new[room:]}
    if dropped_ids:
        connection.execute(delete(_keys).where(_keys.c.pipeline == pipeline, _keys.c.id.in_(dropped_ids)))
    rows: list[dict[str, Any]] = []
    for id_, key in keys_by_id.items():
        row: dict[str, Any] = {"pipeline": pipeline, "id": id_, "key": plain(key), "transaction_id": transaction}
        row |= {"values_until": moment + values_kept if values_kept is not None and examples.get(key) else None}
        row |= {"first": moment, "logs": 0, "looked": 0, "examples": [plain(value) for value in examples.get(key, [])]}
        if id_ in stored_rows:
            row |= stored_rows[id_]._asdict()
        row |= {"kept_in": kept_in.get(key)}
        rows.append(row | {"last": moment, "logs": row["logs"] + logs[key], "looked": row["looked"] + looked})
    # A key that is there keeps its examples, and takes none of `rows`.
    upsert(connection, _keys, rows, ("last", "logs", "looked", "kept_in"))
    fresh = [UnnamedKey(*(row[column.name] for column in _KEY)) for row in rows if row["id"] not in stored_rows]
    if fresh:
        more = f"; and {len(fresh) - _TOLD} more" if len(fresh) > _TOLD else ""
        note(connection, transaction, "new keys", "; ".join(key.counted for key in fresh[:_TOLD]) + more)
    return fresh


def seen(
    connection: Connection, names: Collection[str] | None = None, since: datetime | None = None
) -> list[UnnamedKey]:
    """Keys that no column of these pipelines (None: of any) names, those seen last for the first time first.

    With `since`, only those that were first seen then or later.
    """
    query = select(*_KEY).order_by(_keys.c.first.desc(), _keys.c.logs.desc(), _keys.c.id)
    if names is not None:
        query = query.where(_keys.c.pipeline.in_(list(names)))
    if since is not None:
        query = query.where(_keys.c.first >= since)
    moment = now(connection)
    unnamed_keys = (
        (UnnamedKey(*key), until) for *key, until in connection.execute(query.add_columns(_keys.c.values_until))
    )
    return [key if until is None or until > moment else replace(key, examples=[]) for key, until in unnamed_keys]


def counts(connection: Connection, names: Collection[str] | None) -> dict[str, UnnamedCount]:
    """The counts of the pipelines that have such keys."""
    query = select(_keys.c.pipeline, func.count(), func.max(_keys.c.first)).group_by(_keys.c.pipeline)
    if names is not None:
        query = query.where(_keys.c.pipeline.in_(list(names)))
    return {pipeline: UnnamedCount(*figures) for pipeline, *figures in connection.execute(query)}


def _id(key: str) -> str:
    # Databases compare texts each in its own way: MySQL takes `a` and `a ` for one.
    return hashlib.sha256(key.encode()).hexdigest()
