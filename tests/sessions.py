"""A Spark session for tests and for programs beside them."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import zipfile
from functools import cache
from typing import TYPE_CHECKING

from airflow_provider_slshudi.exceptions import RuntimeMissing
from airflow_provider_slshudi.hudi.client.gateway import keep_names
from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.runtime import environment, quiet, session_conf, with_asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn500m"
_HADOOP = "io.trino.hadoop:hadoop-apache:3.3.5-3"
"""Hadoop has its native library for builds of its own only; this jar has it for each machine."""
_MACHINES = {"x86_64": "amd64", "aarch64": "aarch64"}


@cache
def java_options() -> str:
    """Java's options for tests.

    Each plan runs a few times, and a second compiler and several collecting threads cost a third of their CPU. With one
    compiler a JVM keeps 48 MiB of code, which sixty tests fill: it then sweeps and compiles anew. With a young
    generation of its default size, a tenth of the CPU goes into collecting.

    Without its native library Hadoop starts a `chmod` for each file that it makes, 3 ms of CPU, another tenth. Where
    that cannot be had, tests only take longer.
    https://hadoop.apache.org/docs/r3.3.4/hadoop-project-dist/hadoop-common/NativeLibraries.html
    """
    machine, library = _MACHINES.get(platform.machine()), packages.home_of(_HADOOP) / "libhadoop.so"
    if platform.system() != "Linux" or machine is None:
        return _SHORT_LIVED
    try:
        jar = next(jar for jar in packages._package(_HADOOP) if "hadoop-apache" in jar.name)
        with packages.staging("native") as work:
            if not library.is_file():
                with zipfile.ZipFile(jar) as packed:
                    (work / library.name).write_bytes(packed.read(f"nativelib/Linux-{machine}/{library.name}"))
                (work / library.name).rename(library)
    except RuntimeMissing as error:
        logging.getLogger(__name__).warning("tests take longer: %s", error)
        return _SHORT_LIVED
    return f"{_SHORT_LIVED} {shlex.quote(f'-Djava.library.path={library.parent}')}"


def start_spark(store: str = "") -> SparkSession:
    """A real Spark with Hudi, as a reader of tables would start it; also of those in the `store` of a table's path."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    # It says at the interpreter's end, to a stream that is closed by then, that it closes a connection.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.master("local[2]").appName("tests").config("spark.ui.enabled", "false")
    asked = {"spark.driver.extraJavaOptions": java_options()}
    for key, value in with_asked(session_conf("local[2]", store), asked).items():
        builder = builder.config(key, value)
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    quiet(session.sparkContext._jvm)
    # What PySpark mentions most: for each column, and for each error that it tells apart.
    keep_names(session.sparkContext._jvm, "functions", "py4j")
    return session
