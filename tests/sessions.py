"""A Spark session for tests and for programs beside them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from airflow_provider_slshudi.hudi.client.gateway import keep_names
from airflow_provider_slshudi.spark.runtime import environment, quiet, session_conf, with_asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn500m"
"""Java's options for tests: each plan runs a few times, and a second compiler and several collecting threads cost a
third of their CPU. With one compiler a JVM keeps 48 MiB of code, which sixty tests fill: it then sweeps and
compiles anew. With a young generation of its default size, a tenth of the CPU goes into collecting."""


def start_spark(store: str = "") -> SparkSession:
    """A real Spark with Hudi, as a reader of tables would start it; also of those in the `store` of a table's path."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    # It says at the interpreter's end, to a stream that is closed by then, that it closes a connection.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.master("local[2]").appName("tests").config("spark.ui.enabled", "false")
    asked = {"spark.driver.extraJavaOptions": SHORT_LIVED}
    for key, value in with_asked(session_conf("local[2]", store), asked).items():
        builder = builder.config(key, value)
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    quiet(session.sparkContext._jvm)
    # What PySpark mentions most: for each column, and for each error that it tells apart.
    keep_names(session.sparkContext._jvm, "functions", "py4j")
    return session
