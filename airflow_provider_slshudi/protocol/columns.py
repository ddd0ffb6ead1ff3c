"""What a batch does to the table's columns: asked when it is planned, and settled when it is recorded."""

from __future__ import annotations

import logging

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch
from airflow_provider_slshudi.hudi import evolution
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.notes import handover
from airflow_provider_slshudi.notes.handover import Claim
from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.storage import Storage

_log = logging.getLogger(__name__)


def changes(pipeline: Pipeline) -> list[evolution.Change] | None:
    """What the next batch changes in the table's columns, those it refuses to change included; None without a table."""
    storage = Storage(pipeline.table.path)
    now = evolution.schema_of_now(storage, Timeline.load(storage))
    return None if now is None else evolution.changes(now, pipeline)


def require_fit(work: Work) -> list[evolution.Change]:
    """How the next batch will change the table's columns; says so in the log.

    Raises:
        ColumnMismatch: the table's columns cannot become the pipeline's; names each with both types.
    """
    found = evolution.require_fit(work.storage, work.timeline(), work.pipeline)
    for change in found:
        if change.kind is not evolution.Kind.DROPPED:
            types = " -> ".join(filter(None, (change.there, change.wanted)))
            _log.info(
                "%s: column %s (%s) is %s: %s", work.storage.uri, change.column, types, change.kind.value, change.note
            )
    return found


def promise(work: Work, transaction: Transaction) -> str:
    """Leaves the schema that the table has once this batch is committed, where the batch changes it.

    Gives why that cannot be, empty where it can. From then on every commit carries these columns. Readers take the
    newest commit by its request: so a batch that was overtaken, with columns that the newest one lacks, must not be
    recorded, since they would be hidden. The caller holds the lease.
    """
    instant = transaction.instant or ""
    order = Claim(work.storage, transaction.id, instant, transaction.token).order()
    timeline = work.timeline()
    now = evolution.schema_of_now(work.storage, timeline)
    pipeline = Pipeline.model_validate(order.pipeline)
    try:
        schema = evolution.schema_to_commit(work.storage, timeline, pipeline)
    except ColumnMismatch as error:
        return f"another batch changed the same columns while it ran ({error})"
    if schema is None or evolution.shows(now, avro_schema(pipeline)):
        return ""
    if now is not None and now.instant > instant:
        return (
            f"it has columns that commit {now.instant} lacks, which began later and completed first, with an older "
            "state of the pipeline's file"
        )
    handover.write_schema(work.storage, instant, schema)
    return ""
