"""Uploads that a killed task left in an S3 store are found by their age, and ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.services import s3_store

pytestmark = pytest.mark.long

KILLED = """
import os, sys
from pyarrow import fs
store = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"])
streams = [store.open_output_stream(place) for place in sys.argv[1:]]
for stream in streams:
    stream.write(os.urandom(24 << 20))
    stream.flush()
os._exit(1)
"""
ENDS = """
from datetime import timedelta
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.uploads import end_old
from tests.sessions import start_spark
spark = start_spark("s3a://lake")
gateway = Gateway.of(spark.sparkContext)
table, other = "s3a://lake/one", "s3a://lake/one_more"
print(*[end_old(gateway, *asked) for asked in (
    [table], [table, timedelta(0)], [table, timedelta(0)], [other, timedelta(0)], ["file:///tmp", timedelta(0)],
)])
spark.stop()
"""


def test_old_uploads_of_a_table_are_ended_and_young_ones_and_other_tables_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_store("lake") as aws:
        for name, value in aws.items():
            monkeypatch.setenv(name, value)
        places = ["lake/one/p=1/a.parquet", "lake/one/b.parquet", "lake/one_more/c.parquet"]
        assert subprocess.run([sys.executable, "-c", KILLED, *places]).returncode == 1
        ran = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True)
        assert ran.stdout.split()[-5:] == ["0", "2", "0", "1", "0"], ran.stdout + ran.stderr[-2000:]
