"""How a batch changes the table's columns: checked when it is planned, settled when it is recorded."""

from __future__ import annotations

import logging

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.hudi import evolution
from airflow_provider_slshudi.hudi.beside import Beside, route_keys
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction.context import Work

_log = logging.getLogger(__name__)


def changes(pipeline: Pipeline) -> list[evolution.Change] | None:
    """The next batch's changes of the table's columns, refused ones included; None without a table."""
    storage = Storage(pipeline.table.path)
    now = evolution.schema_of_now(storage, Timeline.load(storage))
    return None if now is None else evolution.changes(now, pipeline)


def require_fit(work: Work, timeline: Timeline | None = None) -> list[evolution.Change]:
    """Returns the next batch's changes of the table's columns; logs all but dropped columns.

    Reads the table's timeline anew unless `timeline` is given.

    Raises:
        ColumnMismatch: the table's columns cannot become the pipeline's; names each with both types.
    """
    column_changes = evolution.require_fit(work.storage, timeline or work.timeline(), work.pipeline)
    for table in (Beside(key, work.pipeline) for key in route_keys(work.pipeline)):
        evolution.require_fit(table.storage, Timeline.load(table.storage), table.pipeline)
    for change in column_changes:
        if change.kind is not evolution.Kind.DROPPED:
            types = " -> ".join(filter(None, (change.there, change.wanted)))
            _log.info(
                "%s: column %s (%s) is %s: %s", work.storage.uri, change.column, types, change.kind.value, change.note
            )
    return column_changes


def promise(work: Work, transaction: Transaction) -> str:
    """Leaves the schema that the table gets with this batch's commit, if the batch changes it.

    Returns why the batch may not be recorded, empty if it may. From then on every commit carries these columns.
    Readers take the schema of the commit that was requested last. If that commit lacks columns of a batch that it
    overtook, it would hide them, so the batch must not be recorded. The caller holds the lease.
    """
    instant = transaction.instant or ""
    attempt = Attempt(work.storage, transaction.id, instant, transaction.token)
    order = attempt.order(transaction.order_digest)
    pipeline = Pipeline.model_validate(work.planned(order))
    for key in route_keys(pipeline):
        table = Beside(key, pipeline)
        if why := _promise(table.storage, Timeline.load(table.storage), table.pipeline, instant):
            return why
    return _promise(work.storage, work.timeline(), pipeline, instant)


def _promise(storage: Storage, timeline: Timeline, pipeline: Pipeline, instant: str) -> str:
    """As `promise`, of one table."""
    now = evolution.schema_of_now(storage, timeline)
    try:
        schema = evolution.schema_to_commit(storage, timeline, pipeline)
    except ColumnMismatch as error:
        return f"another batch changed the same columns while it ran ({error})"
    if schema is None or evolution.shows(now, avro_schema(pipeline)):
        return ""
    if now is not None and now.instant > instant:
        return (
            f"commit {now.instant} began later but completed first, with an older version of the pipeline's file, and "
            "lacks columns of this batch"
        )
    batch_files.write_schema(storage, instant, schema)
    return ""
