"""The application of spark-submit: `VERB ORDER`, see `orders`. Results are left on the table, not printed."""

from __future__ import annotations

import os
import sys

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.exceptions import ManifestError, TableError
from airflow_provider_slshudi.hudi import commit, exchange, instants
from airflow_provider_slshudi.hudi.exchange import Owner
from airflow_provider_slshudi.hudi.gateway import Gateway
from airflow_provider_slshudi.hudi.runtime import quiet
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Phase, Timeline
from airflow_provider_slshudi.job.orders import JobOrder, Verb


def main(arguments: list[str]) -> int:
    """Runs one verb."""
    verb, order = Verb(arguments[0]), JobOrder.from_json(arguments[1])
    pipeline = Pipeline.model_validate(order.pipeline)
    runs = {
        Verb.OPEN: _open,
        Verb.APPEND: _append,
        Verb.COMMIT: _commit,
        Verb.ROLLBACK: _roll_back,
        Verb.VERIFY: _verify,
    }
    runs[verb](order, pipeline, Storage(pipeline.table.path))
    return 0


def _open(order: JobOrder, pipeline: Pipeline, storage: Storage) -> None:
    gateway = Gateway.without_context()
    if storage.exists(".hoodie/hoodie.properties"):
        instants.check_table(gateway, pipeline)
    else:
        instants.create_table(gateway, pipeline)
    instant = instants.new_instant_time(gateway, storage.uri)
    # The owner first: a crash in between leaves no instant that nobody knows.
    exchange.write_owner(storage, instant, Owner(order.transaction, pipeline.name, order.token))
    instants.request(gateway, storage.uri, instant)
    print(f"opened instant {instant} for transaction {order.transaction}")


def _append(order: JobOrder, pipeline: Pipeline, storage: Storage) -> None:
    from pyspark import SparkContext

    from airflow_provider_slshudi.job.append import append
    from airflow_provider_slshudi.sls.connection import SlsConnection
    from airflow_provider_slshudi.sls.service import LogService

    batch = exchange.read_order(storage, order.transaction, order.instant, order.token)
    source = pipeline.source
    service = LogService(SlsConnection.from_env(os.environ), source.project, source.logstore)
    with SparkContext.getOrCreate() as spark:
        manifest = append(spark, Gateway.of(spark), storage, batch, service)
    print(f"instant {order.instant}: {manifest.rows} rows in {len(manifest.stats)} files")


def _commit(order: JobOrder, pipeline: Pipeline, storage: Storage) -> None:
    manifest, digest = exchange.read_manifest(storage, order.transaction, order.instant, order.token)
    if digest != order.digest or manifest.transaction != order.transaction:
        raise ManifestError(
            f"{storage.uri}: the manifest of instant {order.instant} is not the one that was recorded "
            f"(SHA-256 {digest}, recorded {order.digest})",
            table=storage.uri,
            transaction=order.transaction,
            instant=order.instant,
        )
    with _control_context() as gateway:
        # As late as can be: the session's seconds are behind us and commitStats does not fence.
        _require_inflight(storage, order.instant)
        commit.commit(gateway, pipeline, order.instant, manifest.stats, order.extra)
    print(f"committed instant {order.instant}: {manifest.rows} rows")


def _roll_back(order: JobOrder, pipeline: Pipeline, storage: Storage) -> None:
    with _control_context() as gateway:
        commit.roll_back(gateway, pipeline, order.instant)
    print(f"rolled back instant {order.instant}")


def _verify(order: JobOrder, pipeline: Pipeline, storage: Storage) -> None:
    from pyspark.sql import SparkSession

    from airflow_provider_slshudi.job.verify import verify

    spark = SparkSession.builder.getOrCreate()
    verify(spark, pipeline, storage, order.transaction)
    spark.stop()


def _require_inflight(storage: Storage, instant: str) -> None:
    found = Timeline.load(storage).get(instant)
    if found is None or found.phase is not Phase.INFLIGHT:
        raise TableError(
            f"{storage.uri}: instant {instant} is {found.phase.value if found else 'not on the timeline'}, "
            "only an inflight one can be committed",
            table=storage.uri,
            instant=instant,
        )


class _control_context:
    """A SparkContext on this machine, whatever master spark-submit was given: a commit needs no cluster."""

    def __enter__(self) -> Gateway:
        from pyspark import SparkConf, SparkContext

        self._spark = SparkContext(conf=SparkConf().setMaster("local[2]"))
        self._spark.setLogLevel("WARN")
        quiet(self._spark._jvm)
        return Gateway.of(self._spark)

    def __exit__(self, *_: object) -> None:
        self._spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
