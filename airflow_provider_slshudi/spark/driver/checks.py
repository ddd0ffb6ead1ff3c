"""The pipeline's checks on rows, by Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Check, Pipeline
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.batch_files import CheckResult
from airflow_provider_slshudi.hudi.schema import RECORD_KEY, table_columns
from airflow_provider_slshudi.storage.objectstore import hadoop_path

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession


def own_session(spark: SparkContext, chosen: Container[str]) -> SparkSession:
    """A new session by Spark's own defaults, in UTC, except for the settings `chosen` by the pipeline.

    A cluster's `spark-defaults.conf` may turn on ANSI mode, case-sensitive names, older rules for times, or reading on
    past missing files: each changes what a condition means, or which rows it sees.
    """
    from pyspark.sql import SparkSession

    session = SparkSession(spark).newSession()
    for name in (row["key"] for row in session.sql("SET").collect()):
        if name.startswith("spark.sql.") and name not in chosen and session.conf.isModifiable(name):
            session.conf.unset(name)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


_LONGEST = 500
_EXAMPLE = "example"
_AGAINST = "against"


class BatchChecks:
    """The checks of a pipeline that look at rows; without any, Spark's SQL is not started.

    Raises:
        ConfigError: an expression does not parse, names no column, or is no condition.
    """

    def __init__(self, spark: SparkContext, pipeline: Pipeline) -> None:
        self._checks = [check for check in pipeline.checks if check.freshness is None]
        if not self._checks:
            return
        self._source = f"pipeline {pipeline.name}"
        self._session = own_session(spark, pipeline.spark.conf)
        self._schema = ", ".join(
            f"`{name}` {type_}" for name, type_ in [(RECORD_KEY, "string"), *table_columns(pipeline)]
        )
        empty = self._session.createDataFrame([], self._schema)
        for check in self._checks:
            _require_condition(empty, check, self._source)

    def results(self, files: Sequence[str]) -> list[CheckResult]:
        """Runs the checks on the base files of a batch; `files` are URIs.

        Raises:
            ConfigError: a check cannot be computed on these rows.
        """
        if not self._checks:
            return []
        if files:
            rows = self._session.read.schema(self._schema).parquet(*map(hadoop_path, files))
        else:
            rows = self._session.createDataFrame([], self._schema)
        try:
            (figures,) = rows.agg(*(figure for check in self._checks for figure in _figures(check))).collect()
        except Exception as error:
            self._require_computable(rows, error)
            raise
        return [_result(check, figures) for check in self._checks]

    def _require_computable(self, rows: DataFrame, error: Exception) -> None:
        """Raises ConfigError for the first check that fails alone where reading the same rows does not."""
        rows.agg(*_readings(rows)).collect()
        for check in self._checks:
            try:
                rows.agg(*_figures(check)).collect()
            except Exception as alone:
                why = f"cannot be computed on the batch's rows: {_reason(alone)}"
                raise _refusal(self._source, check, why) from error


def _figures(check: Check) -> list[Column]:
    from pyspark.sql.functions import coalesce, col, count_if, expr, lit, min, when

    if check.batch is not None:
        return [expr(check.batch).alias(check.name)]
    fails = ~coalesce(expr(str(check.every)), lit(True))
    example = min(when(fails, col(RECORD_KEY)))
    return [count_if(fails).alias(f"{_AGAINST} {check.name}"), example.alias(f"{_EXAMPLE} {check.name}")]


def _require_condition(rows: DataFrame, check: Check, source: str) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql.functions import expr

    how = "batch" if check.batch is not None else "every"
    text = str(getattr(check, how))
    why = ""
    try:
        condition = expr(text)
        frame = rows.agg(condition) if check.batch is not None else rows.select(condition)
        type_ = frame.dtypes[0][1]
        if type_ != "boolean":
            why = f"is of type {type_}, expected a condition"
    except AnalysisException as error:  # ParseException is one
        why = " ".join(str(error).split(";")[0].split())[:_LONGEST]
    if why:
        raise _refusal(source, check, why)


def _refusal(source: str, check: Check, why: str) -> ConfigError:
    how = "batch" if check.batch is not None else "every"
    field, text = f"checks.{check.name}.{how}", str(getattr(check, how))
    return ConfigError(f"{source}: {field}: {text!r} {why}", source=source, field=field, value=text)


def _readings(rows: DataFrame) -> list[Column]:
    """Figures for which Spark reads every column and computes nothing else."""
    from pyspark.sql.functions import col, count

    return [count(col(f"`{name}`")).alias(str(number)) for number, name in enumerate(rows.columns)]


def _reason(error: Exception) -> str:
    """Spark's own line of an error: the one with the name of its kind, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = (line[kind.start() :] for line in lines if (kind := re.search(r"\[[A-Z_]{4,}[A-Z_.]*\]", line)))
    return next(named, lines[0] if lines else type(error).__name__)[:_LONGEST]


def _result(check: Check, found: Any) -> CheckResult:
    if check.batch is not None:
        return CheckResult.of(check, found[check.name] is not False, f"not so: {check.batch}")
    against = found[f"{_AGAINST} {check.name}"]
    why = f"{against} rows are against it, one of them {found[f'{_EXAMPLE} {check.name}']}: {check.every}"
    return CheckResult.of(check, not against, why)
