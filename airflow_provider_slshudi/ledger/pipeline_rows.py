"""Pipelines, their shards and the DAGs that write them, on a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select, update

from airflow_provider_slshudi.ledger import models, reads
from airflow_provider_slshudi.ledger.models import upsert
from airflow_provider_slshudi.ledger.records import LATE, LedgerShard

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
    """By pipeline, the ids of the DAGs that have worked on it as their own."""
    dags_by_pipeline: dict[str, set[str]] = {}
    for pipeline, dag_id in connection.execute(select(_dags.c.pipeline, _dags.c.dag_id)):
        dags_by_pipeline.setdefault(pipeline, set()).add(dag_id)
    return {pipeline: frozenset(dags) for pipeline, dags in dags_by_pipeline.items()}


def accept(connection: Connection, pipeline: str, completion: str) -> None:
    """Accepts other clients' writes to the table up to `completion`, Hudi's completion time, as meant."""
    table = models.pipelines
    connection.execute(update(table).where(table.c.name == pipeline).values(accepted=completion))


def save_shards(connection: Connection, pipeline: str, shards: Sequence[LedgerShard]) -> None:
    """Adds new shards and updates known ones; removes none. A stored `first` changes only while the shard is LATE.

    `status` and `end` belong together: the status, seen before the end, says whether the end is final.
    """
    reads.lock_pipeline(connection, pipeline)
    stored_shards = {shard.id: shard for shard in reads.shards(connection, pipeline)}
    # Where duty begins does not change once it is sure.
    sure = {id_: shard.first for id_, shard in stored_shards.items() if shard.status != LATE}
    merged_shards = (replace(shard, first=sure.get(shard.id, shard.first)) for shard in shards)
    rows = [shard_row(pipeline, shard) for shard in merged_shards if shard != stored_shards.get(shard.id)]
    upsert(connection, models.shards, rows, ["status", "hash_begin", "hash_end", "last_end", "first"])


def shard_row(pipeline: str, shard: LedgerShard) -> dict[str, Any]:
    """A shard's row without its bytes and rows per log group."""
    row = {"pipeline": pipeline, "shard": shard.id, "status": shard.status, "first": shard.first}
    return row | {"hash_begin": shard.hash_begin, "hash_end": shard.hash_end, "last_end": shard.end}
