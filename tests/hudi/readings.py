"""Ways of reading a table by Spark, and its values as Arrow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from tests.pipelines import ad_events

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def of(path: Path, *columns: tuple[str, str] | dict[str, Any], **more: Any) -> Pipeline:
    """A pipeline of `n` and these columns, without partitions."""
    described = [given if isinstance(given, dict) else {"name": given[0], "type": given[1]} for given in columns]
    table = {"path": f"file://{path}", "name": "evolving"}
    return ad_events(path, **{"table": table, "rest_column": None, **more, "columns": [{"name": "n"}, *described]})


Reading = tuple[bool, dict[str, str]]
SNAPSHOTS: dict[str, Reading] = {
    "by the metadata table, vectorised": (
        True,
        {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"},
    ),
    "by listing, row by row": (False, {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}),
}
"""Ways of reading a table by Spark: whether vectorised, and Hudi's options."""
READINGS: dict[str, Reading] = SNAPSHOTS | {
    "incremental": (
        True,
        {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000"},
    )
}


@contextmanager
def vectorised(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Spark's default is true; Hudi's incremental read leaves the session with false."""
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", str(wanted).lower())
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def by_spark(spark: SparkSession, path: Path | str, reading: Reading, names: Sequence[str]) -> list[Row]:
    """The rows by their first column."""
    is_vectorised, options = reading
    with vectorised(spark, is_vectorised):
        return spark.read.format("hudi").options(**options).load(str(path)).select(*names).orderBy(names[0]).collect()


def plain(value: Any) -> Any:
    """A value of Spark's as Arrow's `to_pylist` has it."""
    if hasattr(value, "asDict"):
        return {name: plain(part) for name, part in value.asDict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value
