"""What each verb does, given a way to the JVM; how that is started is `__main__`'s part."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableError
from airflow_provider_slshudi.hudi import catalog, commit, exchange, instants, services
from airflow_provider_slshudi.hudi.exchange import Owner
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Phase, Timeline
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from airflow_provider_slshudi.points import Point, reach

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.sls.service import LogService


def open_instant(gateway: Gateway, order: JobOrder) -> None:
    """Makes the table where there is none and puts a new instant of the transaction on its timeline."""
    pipeline, storage = _table(order)
    if storage.exists(".hoodie/hoodie.properties"):
        instants.check_table(gateway, pipeline)
    else:
        instants.create_table(gateway, pipeline)
    reach(Point.OPEN_TABLE_READY)
    instant = instants.new_instant_time(gateway, storage.uri)
    # The owner first: a crash in between leaves no instant that nobody knows.
    exchange.write_owner(storage, instant, Owner(order.transaction, pipeline.name, order.token))
    reach(Point.OPEN_OWNED)
    instants.request(gateway, storage.uri, instant, instants.action(pipeline.table))
    reach(Point.OPEN_REQUESTED)
    print(f"opened instant {instant} for transaction {order.transaction}")


def append(spark: SparkContext, order: JobOrder) -> None:
    """Carries out the batch order that the transaction left on the table."""
    from airflow_provider_slshudi.job.append import append
    from airflow_provider_slshudi.job.upsert import upsert

    pipeline, storage = _table(order)
    batch = exchange.read_order(storage, order.transaction, order.instant, order.token)
    service = _service(pipeline)
    reach(Point.APPEND_STARTED)
    write = append if pipeline.table.upsert is None else upsert
    manifest = write(spark, Gateway.of(spark), storage, batch, service)
    reach(Point.APPEND_LEFT_MANIFEST)
    print(f"instant {order.instant}: {manifest.rows} rows in {len(manifest.stats)} files")


def commit_instant(gateway: Gateway, order: JobOrder) -> None:
    """Commits the instant with the manifest that was recorded.

    Raises:
        ManifestError: the manifest, or what goes into the commit's extra metadata, is not that one.
        TableError: the instant is not INFLIGHT, or the time to commit it is over.
    """
    pipeline, storage = _table(order)
    manifest, digest = exchange.read_manifest(storage, order.transaction, order.instant, order.token)
    if digest != order.digest or manifest.transaction != order.transaction:
        raise ManifestError(
            f"{storage.uri}: the manifest of instant {order.instant} is not the one that was recorded "
            f"(SHA-256 {digest}, recorded {order.digest})",
            table=storage.uri,
            transaction=order.transaction,
            instant=order.instant,
        )
    extra = exchange.read_extra(storage, order.transaction, order.instant, order.token, order.extra)
    _require_inflight(storage, order.instant)
    reach(Point.COMMIT_STARTED)
    in_time = partial(_in_time, storage, order, f"commit instant {order.instant}")
    commit.commit(gateway, pipeline, order.instant, manifest.stats, extra, in_time)
    reach(Point.COMMIT_COMPLETED)
    print(f"committed instant {order.instant}: {manifest.rows} rows")


def roll_back(gateway: Gateway, order: JobOrder) -> None:
    """Rolls the instant back."""
    pipeline, _ = _table(order)
    reach(Point.ROLLBACK_STARTED)
    commit.roll_back(gateway, pipeline, order.instant)
    reach(Point.ROLLBACK_COMPLETED)
    print(f"rolled back instant {order.instant}")


def plan_clean(gateway: Gateway, order: JobOrder) -> None:
    """Puts a clean on the timeline where there is something to delete."""
    pipeline, storage = _table(order)
    _in_time(storage, order, "plan a clean")
    services.plan_clean(gateway, pipeline)
    reach(Point.CLEAN_PLANNED)


def clean(gateway: Gateway, order: JobOrder) -> None:
    """Completes the clean that is planned."""
    pipeline, storage = _table(order)
    reach(Point.CLEAN_STARTED)
    _in_time(storage, order, f"clean as instant {order.instant}")
    services.clean(gateway, pipeline)
    reach(Point.CLEAN_COMPLETED)
    print(f"completed clean {order.instant}")


def archive(gateway: Gateway, order: JobOrder) -> None:
    """Archives the oldest instants."""
    pipeline, storage = _table(order)
    reach(Point.ARCHIVE_STARTED)
    _in_time(storage, order, "archive")
    services.archive(gateway, pipeline)
    reach(Point.ARCHIVE_COMPLETED)


def sync(gateway: Gateway, order: JobOrder) -> None:
    """Brings what the catalog says of the table up to its newest commit."""
    pipeline, _ = _table(order)
    if pipeline.catalog is not None:
        catalog.sync(gateway, pipeline, pipeline.catalog)


CONTROL: dict[Verb, Callable[[Gateway, JobOrder], None]] = {
    Verb.OPEN: open_instant,
    Verb.COMMIT: commit_instant,
    Verb.ROLLBACK: roll_back,
    Verb.PLAN_CLEAN: plan_clean,
    Verb.CLEAN: clean,
    Verb.ARCHIVE: archive,
    Verb.SYNC: sync,
}
"""What verbs that are not distributed do."""


def verify(spark: SparkSession, order: JobOrder) -> None:
    """Carries out the verification that the order names."""
    from airflow_provider_slshudi.job import verify

    pipeline, storage = _table(order)
    service = _service(pipeline) if verify.asks_service(storage, order.transaction) else None
    verify.verify(spark, pipeline, storage, order.transaction, service)


def _service(pipeline: Pipeline) -> LogService:
    """The source, with the credentials that came in this process's environment."""
    from airflow_provider_slshudi.sls.connection import SlsConnection
    from airflow_provider_slshudi.sls.service import LogService

    return LogService(SlsConnection.from_env(os.environ), pipeline.source.project, pipeline.source.logstore)


def _table(order: JobOrder) -> tuple[Pipeline, Storage]:
    pipeline = Pipeline.model_validate(order.pipeline)
    return pipeline, Storage(pipeline.table.path)


def _in_time(storage: Storage, order: JobOrder, what: str) -> None:
    if time.monotonic() > order.until > 0:
        raise TableError(
            f"{storage.uri}: the time to {what} was over; nothing was done",
            table=storage.uri,
            instant=order.instant or None,
        )


def _require_inflight(storage: Storage, instant: str) -> None:
    timeline = Timeline.load(storage)
    found = timeline.get(instant)
    state = found.phase.value if found else "not on the timeline"
    if instant in timeline.rolling_back:
        state = "being rolled back"
    if state != Phase.INFLIGHT.value:
        raise TableError(
            f"{storage.uri}: instant {instant} is {state}, only an inflight one can be committed",
            table=storage.uri,
            instant=instant,
        )
