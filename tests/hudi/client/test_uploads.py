"""Uploads of an instant that is shut are ended, and those that a killed task left, which are found by their age."""

from __future__ import annotations

import subprocess
import sys

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from airflow_provider_slshudi.hudi.client import uploads
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
from airflow_provider_slshudi.storage.files import Storage
from tests.sessions import start_spark
spark = start_spark("s3a://lake")
gateway = Gateway.of(spark.sparkContext)
table, other = "s3a://lake/one", "s3a://lake/one_more"
print(*[end_old(gateway, Storage(table), *older) for table, *older in (
    [table], [table, timedelta(0)], [table, timedelta(0)], [other, timedelta(0)], ["file:///tmp", timedelta(0)],
)])
spark.stop()
"""

SHUT = """
import sys
from airflow_provider_slshudi.exceptions import ManifestError, TimelineUnreadable
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client import uploads
from airflow_provider_slshudi.hudi.client.uploads import end_of
from airflow_provider_slshudi.hudi.files import marking
from airflow_provider_slshudi.handover import fencing
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.storage.files import Storage
from tests.sessions import start_spark
spark = start_spark("s3a://lake")
gateway = Gateway.of(spark.sparkContext)
storage, one, other = Storage("s3a://lake/two"), "20260131000000001", "20260131000000002"

by_key = uploads._uploads
if sys.argv[1] == "MinIO":
    uploads._uploads = lambda store, asked: iter(()) if asked.endswith("/") else by_key(store, asked)

def begun(instant, name, size):
    file = marking.AttemptFile(storage, instant, "p=1", f"{name}_0-0-0_{instant}.parquet")
    if sys.argv[1] != "without markers":
        marking.mark(storage, instant, file.path, lambda: None)
    file.open().write(bytes(size))
    return file

def ended(file):
    try:
        file.close()
        return "named"
    except (ManifestError, TimelineUnreadable) as error:
        file.abandon()
        return type(error).__name__

def shut(point):
    if point is Point.APPEND_TASK_ENDED:
        fencing.shut(storage, one)
        # Of an append: what it has written is a file, and not asked for.
        print(end_of(gateway, storage, one, [early.path]) if sys.argv[1] == "MinIO" else end_of(gateway, storage, one))

for instant in (one, other):
    fencing.admit(storage, instant)
early, still, large = (begun(one, name, size) for name, size in (("early", 9), ("still", 9), ("large", 12 << 20)))
others = begun(other, "others", 9)
print(ended(early))
marking.reach = shut
print(ended(still))
marking.reach = lambda point: None
# One whose upload was ended, and one that begins after that.
print(ended(large), ended(begun(one, "late", 9)), end_of(gateway, storage, one), ended(others))
print(*sorted(storage.names("p=1")))
print(storage.names(fencing.folder(one)))
spark.stop()
"""
REFUSED = """
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi import markers
from airflow_provider_slshudi.hudi.client.uploads import end_of
from airflow_provider_slshudi.storage.files import Storage
from tests.sessions import start_spark
from airflow_provider_slshudi.exceptions import TimelineUnreadable
markers.marked = lambda *_: []
spark = start_spark("s3a://lake")
hadoop = spark.sparkContext._jsc.hadoopConfiguration()
for name, value in (("attempts.maximum", "1"), ("retry.limit", "1"), ("retry.interval", "50ms")):
    hadoop.set(f"fs.s3a.{name}", value)
gateway, storage = Gateway.of(spark.sparkContext), Storage("s3a://lake/three")
print(end_of(gateway, storage, "20260131000000001", []))
print(end_of(gateway, storage, "20260131000000001"))
markers.marked = lambda *_: ["p=1/a_0-0-0_20260131000000001.parquet"]
try:
    end_of(gateway, storage, "20260131000000001", [])
except TimelineUnreadable as error:
    print("told", error)
spark.stop()
"""


@pytest.mark.parametrize("how", ["", "without markers", "MinIO"])
def test_no_file_gets_its_name_once_its_instant_is_shut_and_its_uploads_are_ended(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Somebody else's rollback takes the markers; MinIO lists an upload by its whole key alone."""
    with s3_store("lake") as aws:
        for name, value in aws.items():
            monkeypatch.setenv(name, value)
        ran = subprocess.run([sys.executable, "-c", SHUT, how], capture_output=True, text=True)
        assert ran.stdout.splitlines()[-6:] == [
            "named",
            "2",
            "TimelineUnreadable",
            "ManifestError ManifestError 1 named",
            "early_0-0-0_20260131000000001.parquet others_0-0-0_20260131000000002.parquet",
            "None",
        ], ran.stdout + ran.stderr[-2000:]


def test_a_store_that_does_not_answer_is_an_error_and_one_that_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_store("lake") as aws:
        for name, value in aws.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        ran = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
        *_, nothing, why, told, refused = ran.stdout.splitlines()
        assert (nothing, told) == ("0", "0"), "an append whose tasks left nothing has nothing to ask"
        assert "Allow s3:ListBucketMultipartUploads" in why and "Allow s3:ListBucketMultipartUploads" in refused
        assert refused.startswith("told ") and refused.endswith("tasks that stood still may yet make files of them")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        ran = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
        assert (
            "TimelineUnreadable: s3a://lake/three: uploads of instant 20260131000000001 could not be ended"
            in ran.stderr
        )


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


class Told(Py4JJavaError):  # type: ignore[misc]
    """An error of the store's client, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "error, passes",
    [
        (Told("java.nio.file.AccessDeniedException: s3a://lake/t: Access Denied (Status Code: 403)"), False),
        (Told("java.nio.file.AccessDeniedException: the token is expired (Error Code: ExpiredToken)"), True),
        (Told("java.nio.file.AccessDeniedException: too large a difference (Error Code: RequestTimeTooSkewed)"), True),
        (Told("java.lang.ClassNotFoundException: org.apache.hadoop.fs.s3a.S3AFileSystem"), False),
        (Told("org.apache.hadoop.fs.s3a.AWSServiceIOException: A header implies (Error Code: NotImplemented)"), False),
        (Told("java.net.SocketTimeoutException: Read timed out"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("Method listUploads([class java.lang.String]) does not exist"), False),
    ],
)
def test_what_may_be_gone_by_the_next_attempt_is_told_apart_from_what_stays(error: Py4JError, passes: bool) -> None:
    assert uploads._passes(error) is passes
