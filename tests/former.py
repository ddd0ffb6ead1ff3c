"""Spark with a former Hudi, as an engine's own would be: a process that knows only where a table is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.runtime import environment

HUDI_1_0 = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2"
HUDI_0_15 = "org.apache.hudi:hudi-spark3.5-bundle_2.12:0.15.0"
_SESSION = """
import json, sys
from pyspark.sql import SparkSession

jar, given = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jar)
builder = builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
builder = builder.config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
builder = builder.config("spark.sql.shuffle.partitions", "1")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
"""
_READER = """
def answer(path, query):
    try:
        spark.read.format("hudi").load(path).createOrReplaceTempView("t")
        return [row.asDict(recursive=True) for row in spark.sql(query).collect()]
    except Exception as error:
        return str(error)

told = [answer(*each) for each in given]
"""


def ask(coordinate: str, *asked: tuple[str, str]) -> list[Any]:
    """What that Spark answers to queries of `t`, each with the path of the table that it is about: rows, or an error.

    Args:
        coordinate: Hudi's bundle, as Maven names it.
    """
    answers: list[Any] = run(coordinate, _READER, asked)
    return answers


def run(coordinate: str, script: str, given: Any) -> Any:
    """Runs a script in that Spark, whose session is `spark`; it finds `given`, and sets `told`, which is returned."""
    [jar] = packages._package(coordinate)
    whole = f"{_SESSION}\n{script}\nprint(json.dumps(told, default=str, sort_keys=True))"
    command = [sys.executable, "-c", whole, str(jar), json.dumps(given)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
