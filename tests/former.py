"""Spark with a former Hudi, as an engine's own would be: a process that knows only where a table is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from airflow_provider_slshudi.spark import packages
from airflow_provider_slshudi.spark.runtime import environment

HUDI_1_0 = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2"
_READER = """
import json, sys
from pyspark.sql import SparkSession

jar, asked = sys.argv[1], json.loads(sys.argv[2])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jar)
builder = builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()

def answer(path, query):
    try:
        spark.read.format("hudi").load(path).createOrReplaceTempView("t")
        return [row.asDict(recursive=True) for row in spark.sql(query).collect()]
    except Exception as error:
        return str(error)

print(json.dumps([answer(*each) for each in asked], default=str, sort_keys=True))
"""


def ask(coordinate: str, *asked: tuple[str, str]) -> list[Any]:
    """What that Spark answers to queries of `t`, each with the path of the table that it is about: rows, or an error.

    Args:
        coordinate: Hudi's bundle, as Maven names it.
    """
    [jar] = packages._package(coordinate)
    command = [sys.executable, "-c", _READER, str(jar), json.dumps(asked)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
