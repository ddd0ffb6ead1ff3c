"""A session of Spark's SQL that gives the same results on every cluster."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


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
