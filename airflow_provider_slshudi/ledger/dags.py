"""The DAGs that write each pipeline, on a connection: they alone own its page."""

from __future__ import annotations

from sqlalchemy import Connection, select

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.upsert import upsert

COMMANDS = "slshudi"
"""Stands for a DAG in what commands do; a DAG of this name owns nothing."""
_dags = models.dags


def keep(connection: Connection, pipeline: str, dag_id: str) -> None:
    """Keeps that a DAG works on a pipeline as its own."""
    if not dag_id or dag_id == COMMANDS:
        return
    is_mine = (_dags.c.pipeline == pipeline) & (_dags.c.dag_id == dag_id)
    if connection.execute(select(_dags.c.dag_id).where(is_mine)).first() is None:
        upsert(connection, _dags, [{"pipeline": pipeline, "dag_id": dag_id}], ("dag_id",))


def writers(connection: Connection) -> dict[str, frozenset[str]]:
    """See `Ledger.writers`."""
    found: dict[str, set[str]] = {}
    for pipeline, dag_id in connection.execute(select(_dags.c.pipeline, _dags.c.dag_id)):
        found.setdefault(pipeline, set()).add(dag_id)
    return {pipeline: frozenset(dags) for pipeline, dags in found.items()}
