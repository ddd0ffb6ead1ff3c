"""Values of logs that the ledger keeps for a while, where a pipeline's file says so, on a connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import now

EXAMPLES = "examples"
"""The item of a manifest that may have values of logs."""
_MOST = 100
"""Manifests that one look rewrites."""


def any_expired(connection: Connection, pipeline: str) -> bool:
    """Whether the ledger has values of the pipeline's logs whose time is over."""
    at = now(connection)
    queries = (select(table.c.pipeline).where(_expired(table, pipeline, at)).limit(1) for table in _TABLES)
    return any(connection.execute(query).first() is not None for query in queries)


def forget(connection: Connection, pipeline: str) -> None:
    """See `Ledger.forget_values`."""
    at, of = now(connection), models.transactions
    query = select(of.c.id, of.c.manifest).where(_expired(of, pipeline, at)).limit(_MOST)
    for id_, manifest in connection.execute(query).all():
        left = {name: value for name, value in (manifest or {}).items() if name != EXAMPLES}
        connection.execute(update(of).where(of.c.id == id_).values(manifest=left, values_until=None))
    keys = models.unnamed_keys
    connection.execute(update(keys).where(_expired(keys, pipeline, at)).values(examples=[], values_until=None))


_TABLES = (models.transactions, models.unnamed_keys)


def _expired(table: Any, pipeline: str, at: Any) -> Any:
    return (table.c.pipeline == pipeline) & (table.c.values_until <= at)
