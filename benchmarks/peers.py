"""Other ways to bring the same ranges into a table, each a Spark application: what throughput is compared with.

`spark-submit peers.py WAY ORDER`, ORDER a JSON file with pipeline and what to write (ranges, group_bytes):
  sdk      what a user writes first: the official SDK in `mapInArrow`, its dicts to Arrow, Hudi's bulk insert
  hudi     our pulls and decoding, Hudi's bulk insert with its row writer
  parquet  our pulls and decoding, Spark's own Parquet files, no table
  rows     rows of a Parquet file (`rows` in the order), Hudi's bulk insert with its row writer
and without Spark, `python peers.py limit ORDER`: pulls, decoding, and pyarrow's Parquet writer in a bare loop, one
process per part; nothing is converted, no row has a key.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from aliyun.log import LogClient

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.hudi.files.parquet import Encodings
from airflow_provider_slshudi.hudi.schema import table_columns
from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.planning.windows import split
from airflow_provider_slshudi.rows.maker import RowMaker, RowSpec
from airflow_provider_slshudi.sls import cursors
from airflow_provider_slshudi.sls.connection import SlsConnection
from airflow_provider_slshudi.sls.reader import Reader
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.spark.runtime import environment, leave, quiet, session_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
ROW_GROUP_BYTES = 32 << 20


def parts_of(given: dict[str, Any]) -> list[list[Range]]:
    """The ranges as the tasks that read them, as the package splits them."""
    ranges = [Range(*item) for item in given["ranges"]]
    density = {item.shard: Density(given["group_bytes"], 0.0) for item in ranges}
    return split(ranges, density, TASKS, 1)


def service_of(pipeline: Pipeline) -> LogService:
    """The log service, reached as fast as it answers."""
    return LogService(SlsConnection.from_env(os.environ), pipeline.source.project, pipeline.source.logstore)


def schema_of(pipeline: Pipeline) -> pa.Schema:
    """The table's columns."""
    return pa.schema([pa.field(name, arrow_type(type_)) for name, type_ in table_columns(pipeline)])


def ours(pipeline: Pipeline, part: list[Range]) -> Iterator[pa.RecordBatch]:
    """Rows by the package's pulls, decoding and conversion."""
    schema, spec = schema_of(pipeline), RowSpec.of(pipeline)
    maker, reader = RowMaker(spec), Reader(service_of(pipeline), pipeline.name)
    for item in part:
        for _, logs in reader.tables(item, spec.keys):
            yield from maker.rows(logs, item.shard).data.cast(schema).to_batches()


def by_sdk(pipeline: Pipeline, part: list[Range]) -> Iterator[pa.RecordBatch]:
    """Rows by the SDK's dicts."""
    connection = SlsConnection.from_env(os.environ)
    client: Any = LogClient(connection.endpoint, connection.access_key_id, connection.access_key_secret.reveal())
    # An address is a host as well as a name is: nothing is to be put before it.
    client._isRowIp = True
    source, schema = pipeline.source, schema_of(pipeline)
    keys = {column.source_key for column in pipeline.columns}
    makers: dict[str, Callable[[str], object]] = {
        "string": str,
        "bigint": int,
        "double": float,
        "boolean": lambda text: text == "true",
        "timestamp": lambda text: int(text) * 1000,
    }
    columns = [(column.name, column.source_key, makers[str(column.type)]) for column in pipeline.columns]
    for item in part:
        at, end = cursors.text(item.begin), cursors.text(item.end)
        while at != end:
            answer = client.pull_logs(source.project, source.logstore, item.shard, at, 1000, end)
            rows = []
            for log in answer.get_flatten_logs_json():
                row = {name: make(log[key]) for name, key, make in columns}
                row["rest"] = [
                    (key, value) for key, value in log.items() if key not in keys and not key.startswith("__")
                ]
                row["event_date"] = None
                rows.append(row)
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            at = answer.get_next_cursor()


def limit(given: dict[str, Any]) -> None:
    """Writes the parts with a process each."""
    with multiprocessing.get_context("spawn").Pool(TASKS) as pool:
        work = [(given, number) for number in range(len(parts_of(given)))]
        pool.starmap(_limit_part, work)
        pool.close()
        pool.join()


def _limit_part(given: dict[str, Any], number: int) -> None:
    pipeline = Pipeline.model_validate(given["pipeline"])
    part, keys = parts_of(given)[number], RowSpec.of(pipeline).keys
    folder = Path(pipeline.table.path.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    reader, waiting, size = Reader(service_of(pipeline), pipeline.name), [], 0
    writer: pq.ParquetWriter | None = None
    for item in part:
        for _, logs in reader.tables(item, keys):
            waiting.append(logs)
            size += logs.nbytes
            if size >= ROW_GROUP_BYTES:
                writer, size = _write(writer, folder / f"{number}.parquet", waiting), 0
    if waiting:
        writer = _write(writer, folder / f"{number}.parquet", waiting)
    if writer is not None:
        writer.close()


def _write(writer: pq.ParquetWriter | None, path: Path, waiting: list[pa.Table]) -> pq.ParquetWriter:
    table = pa.concat_tables(waiting)
    waiting.clear()
    if writer is None:
        encodings = Encodings().of(table)
        writer = pq.ParquetWriter(path, table.schema, compression="zstd", compression_level=1, **encodings)
    writer.write_table(table, row_group_size=table.num_rows)
    return writer


def by_spark(spark: SparkSession, way: str, given: dict[str, Any]) -> None:
    """Writes the ranges, or the file of rows, in the way that is named."""
    from pyspark.sql import functions

    pipeline = Pipeline.model_validate(given["pipeline"])
    rows = spark.read.parquet(given["rows"]) if way == "rows" else _read(spark, way, pipeline, given)
    if way == "sdk":
        rows = rows.withColumn("event_date", functions.date_format("event_time", "yyyy-MM-dd"))
    path = pipeline.table.path
    if way == "parquet":
        rows.write.partitionBy("event_date").mode("append").parquet(path)
        return
    options = {
        "hoodie.table.name": pipeline.table.name,
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.datasource.write.recordkey.field": "event_id",
        "hoodie.datasource.write.partitionpath.field": "event_date",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.bulkinsert.sort.mode": "NONE",
        "hoodie.bulkinsert.shuffle.parallelism": str(TASKS),
    }
    rows.write.format("hudi").options(**options).mode("append").save(path)


def _read(spark: SparkSession, way: str, pipeline: Pipeline, given: dict[str, Any]) -> DataFrame:
    parts = parts_of(given)
    ddl = ", ".join(f"{name} {type_}" for name, type_ in table_columns(pipeline))
    rows_of = by_sdk if way == "sdk" else ours

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(pipeline, parts[number])

    numbers = spark.sparkContext.parallelize([(number,) for number in range(len(parts))], len(parts))
    return spark.createDataFrame(numbers, "n int").mapInArrow(read, ddl)


def submit(way: str, given: dict[str, Any], folder: Path, variables: Mapping[str, str]) -> None:
    """Runs one way to its end; `variables` are more of the environment's.

    Raises:
        SystemExit: it failed; with what it said.
    """
    order = folder / "order.json"
    order.write_text(json.dumps(given), encoding="utf-8")
    made = {**os.environ, **environment(), **variables}
    command = [sys.executable]
    if way != "limit":
        command = [str(Path(made["SPARK_HOME"]) / "bin" / "spark-submit"), "--master", f"local[{TASKS}]"]
        for key, value in {**session_conf("local"), "spark.ui.enabled": "false"}.items():
            command += ["--conf", f"{key}={value}"]
    command += [__file__, way, str(order)]
    done = subprocess.run(command, env=made, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr + done.stdout).splitlines()
        said = [line for line in lines if " INFO " not in line and not line.startswith("\tat ")]
        raise SystemExit("\n".join([f"{way} ended with {done.returncode}:", *said[-40:]]))


def main(way: str, order: str) -> None:
    """Runs one way."""
    given = json.loads(Path(order).read_text(encoding="utf-8"))
    if way == "limit":
        limit(given)
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    quiet(spark._jvm)
    by_spark(spark, way, given)
    spark.stop()
    leave(spark._jvm)


if __name__ == "__main__":
    main(*sys.argv[1:])
