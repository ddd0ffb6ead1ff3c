"""The upsert: tasks pull the ranges of an order, one row is left of each key, and Hudi's writer merges them in."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config import Pipeline, Upsert
from airflow_provider_slshudi.exceptions import KeyMissing, ManifestError
from airflow_provider_slshudi.hudi import exchange, instants
from airflow_provider_slshudi.hudi.commit import client, upsert_options
from airflow_provider_slshudi.hudi.exchange import BatchOrder, Manifest, RangeDone
from airflow_provider_slshudi.hudi.gateway import Gateway, hadoop_path
from airflow_provider_slshudi.hudi.schema import arrow_type, table_columns
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.job.append import parts
from airflow_provider_slshudi.job.reading import Reading, ReadSpec, read_limits
from airflow_provider_slshudi.job.rows import Rows, RowSpec
from airflow_provider_slshudi.points import Point, reach
from airflow_provider_slshudi.ranges import Range
from airflow_provider_slshudi.sls.service import LogService

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

# Columns beside the table's: where a row came from, by which rows of a key are ordered, and what a task says at its
# end, in a row of its own.
_PLACE = (("__shard", "int"), ("__cursor", "bigint"), ("__index", "int"))
_TOLD = "__told"


@dataclass(frozen=True)
class PullTask:
    """The work of every task but for its ranges, as `mapInArrow` calls it."""

    read: ReadSpec
    storage: Storage
    transaction: str
    token: int
    instant: str
    required: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    def __call__(self, specs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the ranges that `specs` hold, then what was read."""
        for spec in specs:
            for ranges in spec.column(0).to_pylist():
                yield from self._pulled(Reading(self.read, [Range(*item) for item in json.loads(ranges)]))

    def _pulled(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        reach(Point.APPEND_TASK_STARTED)
        exchange.require_order(self.storage, self.transaction, self.instant, self.token)
        for made, logs, shard, _ in reading.rows():
            require_values(made, self.required)
            count = made.data.num_rows
            data = {name: _plain(made.data[name], arrow_type(type_)) for name, type_ in self.columns}
            place = (pa.array([shard] * count, pa.int32()), logs["__cursor__"], logs["__index__"].cast(pa.int32()))
            table = pa.table(
                {**data, **dict(zip(dict(_PLACE), place, strict=True)), _TOLD: pa.nulls(count, pa.string())}
            )
            yield from table.combine_chunks().to_batches()
        reach(Point.APPEND_TASK_WRITTEN)
        told = json.dumps({"ranges": [asdict(done) for done in reading.done()], "misfits": reading.misfits})
        nulls = {name: pa.nulls(1, arrow_type(type_)) for name, type_ in (*self.columns, *_PLACE)}
        yield from pa.table({**nulls, _TOLD: pa.array([told])}).to_batches()


def upsert(spark: SparkContext, gateway: Gateway, storage: Storage, order: BatchOrder, service: LogService) -> Manifest:
    """Carries out an order and leaves its manifest.

    Raises:
        KeyMissing: a log has no value for a column of the record key, or for the ordering field.
        SourceError, DecodeError, ValueMisfit: as the tasks found; wrapped by Spark once a task has failed for good.
    """
    from pyspark.sql import SparkSession

    started = time.monotonic()
    pipeline = Pipeline.model_validate(order.pipeline)
    session = SparkSession(spark).newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    action = instants.action(pipeline.table)
    # Ours alone: of two drivers of one instant the second is refused here.
    instants.to_inflight(gateway, storage.uri, order.instant, action)
    reach(Point.APPEND_INFLIGHT)
    pulled = _pull(session, storage, order, pipeline, service).persist()
    try:
        print("T0", time.monotonic() - started)
        ranges, misfits = _told(pulled)
        print("T1", time.monotonic() - started)
        rows = reduce_rows(pulled.where(f"{_TOLD} IS NULL"), pipeline)
        exchange.require_order(storage, order.transaction, order.instant, order.token)
        stats = write(gateway, pipeline, rows, order.instant)
        print("T2", time.monotonic() - started)
        import os
        if os.environ.get("DUMP"): print(json.dumps(stats, indent=1))
    finally:
        pulled.unpersist()
    manifest = Manifest(
        order.transaction, order.token, order.instant, stats, ranges, misfits, time.monotonic() - started
    )
    reach(Point.APPEND_WRITTEN)
    exchange.require_order(storage, order.transaction, order.instant, order.token)
    exchange.write_manifest(storage, manifest)
    return manifest


def _pull(
    session: SparkSession, storage: Storage, order: BatchOrder, pipeline: Pipeline, service: LogService
) -> DataFrame:
    context = session.sparkContext
    work = parts(order, pipeline, context.defaultParallelism)
    columns = table_columns(pipeline)
    task = PullTask(
        ReadSpec(service, pipeline.name, RowSpec.of(pipeline), read_limits(pipeline.source, work)),
        storage,
        order.transaction,
        order.token,
        order.instant,
        _required(pipeline),
        tuple(columns),
    )
    texts = [(json.dumps([[item.shard, item.begin, item.end] for item in part]),) for part in work]
    given = context.parallelize(texts, max(1, len(work)))
    schema = ", ".join(f"`{name}` {type_}" for name, type_ in (*columns, *_PLACE, (_TOLD, "string")))
    return session.createDataFrame(given, "ranges string").mapInArrow(_runner(task), schema)


def _runner(task: PullTask) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    return lambda specs: task(specs)


def _told(pulled: DataFrame) -> tuple[list[RangeDone], dict[str, int]]:
    """What the tasks said; this is the action that has them pull."""
    told = [json.loads(row[0]) for row in pulled.where(f"{_TOLD} IS NOT NULL").select(_TOLD).collect()]
    misfits: Counter[str] = Counter()
    for task in told:
        misfits.update(task["misfits"])
    return [RangeDone(**done) for task in told for done in task["ranges"]], dict(misfits)


def _required(pipeline: Pipeline) -> tuple[str, ...]:
    upsert = _upsert_of(pipeline)
    return (*upsert.record_key, *([upsert.ordering_field] if upsert.ordering_field else []))


def _upsert_of(pipeline: Pipeline) -> Upsert:
    assert pipeline.table.upsert is not None  # noqa: S101 - a pipeline without it appends
    return pipeline.table.upsert


def require_values(made: Rows, columns: tuple[str, ...]) -> None:
    """Raises KeyMissing where a row has no value, or an empty text, in one of the columns."""
    for name in columns:
        values = made.data[name]
        lacking = pc.is_null(values)
        if pa.types.is_string(values.type):
            lacking = pc.or_(lacking, pc.equal(pc.fill_null(values, ""), ""))
        if pc.any(lacking).as_py():
            raise KeyMissing(name, str(made.keys.filter(lacking)[0]))


def reduce_rows(rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """One row of each key and partition: that of the greatest ordering value, of these the one that came last.

    Shards are not ordered among each other; rows of a child shard come after those of its parents, whose ids are
    smaller. With partial updates a NULL in the winner is filled from the rows before it.
    """
    from pyspark.sql.functions import col, expr

    upsert, partition = _upsert_of(pipeline), pipeline.table.partition
    keys = list(dict.fromkeys([*upsert.record_key, *([partition.name] if partition else [])]))
    names = [name for name, _ in table_columns(pipeline)]
    order = ", ".join(f"`{name}`" for name in [*filter(None, [upsert.ordering_field]), *dict(_PLACE)])
    rest = [name for name in names if name not in keys]
    if upsert.partial_update:
        found = [
            expr(f"max_by(`{name}`, struct({order})) FILTER (WHERE `{name}` IS NOT NULL)").alias(name) for name in rest
        ]
        return rows.groupBy(*keys).agg(*found).select(*names)
    whole = ", ".join(f"`{name}`" for name in rest)
    best = expr(f"max_by(struct({whole}), struct({order}))").alias("__best")
    reduced = rows.groupBy(*keys).agg(best)
    return reduced.select(*(col(name) if name in keys else col(f"__best.{name}").alias(name) for name in names))


def write(gateway: Gateway, pipeline: Pipeline, rows: DataFrame, instant: str) -> list[dict[str, Any]]:
    """Writes rows with Hudi's own upsert (hudi.apache.org/docs/write_operations); gives the write stats.

    Raises:
        ManifestError: Hudi could not write some of them.
    """
    jvm, hudi, table = gateway.jvm, gateway.hudi, pipeline.table
    parameters = jvm.java.util.HashMap()
    for key, value in _parameters(pipeline).items():
        parameters.put(key, value)
    with_defaults = hudi.HoodieWriterUtils.parametersWithWriteDefaults(
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(parameters)
    )
    record, namespace = f"{table.name}_record", f"hoodie.{table.name}"
    schema = hudi.HoodieSchemaConversionUtils.convertStructTypeToHoodieSchema(rows._jdf.schema(), record, namespace)
    with client(gateway, pipeline, _WRITE_OPTIONS) as writer:
        arguments = getattr(hudi, "HoodieCreateRecordUtils$createHoodieRecordRddArgs")(
            rows._jdf,
            writer.getConfig(),
            with_defaults,
            record,
            namespace,
            schema,
            schema,
            hudi.common.model.WriteOperationType.UPSERT,
            instant,
            False,
            False,
            False,
            gateway.meta_client(hadoop_path(table.path)).getTableConfig(),
        )
        statuses = writer.upsert(hudi.HoodieCreateRecordUtils.createHoodieRecordRdd(arguments), instant).collect()
        mapper = hudi.common.util.JsonUtils.getObjectMapper()
        failed = sum(status.getTotalErrorRecords() for status in statuses)
        if failed:
            raise ManifestError(
                f"{table.path}: Hudi could not write {failed} rows of instant {instant}",
                table=table.path,
                transaction="",
                instant=instant,
            )
        return [json.loads(mapper.writeValueAsString(status.getStat())) for status in statuses]


# The rows' keys are distinct already. The instant was moved on before the rows were read.
_WRITE_OPTIONS = {"hoodie.combine.before.upsert": "false", "_hoodie.allow.multi.write.on.same.instant": "true"}


def _parameters(pipeline: Pipeline) -> dict[str, str]:
    table = pipeline.table
    found = {
        **upsert_options(_upsert_of(pipeline)),
        **_WRITE_OPTIONS,
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.table.type": table.type.upper(),
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.keygenerator.class": instants.key_generator(table),
    }
    if table.partition is not None:
        found["hoodie.datasource.write.partitionpath.field"] = table.partition.name
        found["hoodie.datasource.write.hive_style_partitioning"] = "true"
        found["hoodie.datasource.write.partitionpath.urlencode"] = "true"
    return found


def _plain(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Spark takes no dictionaries."""
    return values.cast(type_) if pa.types.is_dictionary(values.type) else values
