"""What an object store's two clients are told, by the variables of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TableError, TimelineUnreadable
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.spark.launch import submission
from airflow_provider_slshudi.storage import objectstore
from airflow_provider_slshudi.storage.files import Storage
from tests.oss import Oss, oss_store
from tests.pipelines import ad_events
from tests.waiting import until

EVERYWHERE = {"spark.hadoop.fs.s3a.paging.maximum": "1000", "spark.hadoop.fs.s3a.directory.marker.retention": "keep"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The machine's variables, of which none is set."""
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", *objectstore.CHECKSUMS):
        # What the code sets by itself goes with the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://s3.oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("https://s3.oss-cn-hangzhou-internal.aliyuncs.com", "cn-hangzhou"),
        ("https://oss-ap-southeast-1.aliyuncs.com/", "ap-southeast-1"),
        ("http://S3.OSS-us-west-1.ALIYUNCS.com:80", "us-west-1"),
        ("s3.oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("https://vpc100-oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou"),
        ("https://ep-x.oss.cn-hangzhou.privatelink.aliyuncs.com", "cn-hangzhou"),
        ("https://s3.oss-accelerate.aliyuncs.com", "us-east-1"),
        ("https://s3.oss-accelerate-overseas.aliyuncs.com", "us-east-1"),
    ],
)
@pytest.mark.parametrize("path", ["oss://lake/events", "s3a://lake/events"])
def test_oss_is_asked_by_the_buckets_own_host(asked: pytest.MonkeyPatch, path: str, endpoint: str, region: str) -> None:
    asked.setenv("AWS_ENDPOINT_URL", endpoint)
    assert objectstore.is_oss(path)
    assert objectstore.arrow_options(path) == {
        "endpoint_override": endpoint,
        "request_timeout": objectstore.ANSWER_SECONDS,
        "force_virtual_addressing": True,
        "region": region,
        "check_directory_existence_before_creation": True,
    }
    assert objectstore.hadoop_conf(path) == {
        **EVERYWHERE,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "false",
        "spark.hadoop.fs.s3a.endpoint.region": region,
    }
    asked.setenv("AWS_REGION", "eu-central-1")
    assert objectstore.arrow_options(path)["region"] == "eu-central-1"


def test_a_path_of_oss_is_in_oss_whatever_its_endpoint_is_called(asked: pytest.MonkeyPatch) -> None:
    asked.setenv("AWS_ENDPOINT_URL", "https://files.example.com")
    assert objectstore.arrow_options("oss://lake/events")["force_virtual_addressing"]
    assert objectstore.hadoop_conf("oss://lake/events")["spark.hadoop.fs.s3a.path.style.access"] == "false"


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:8333", "https://minio.oss-cn-prod.example.com", "https://oss-gateway.corp.test:9000"]
)
def test_another_store_is_asked_by_paths(asked: pytest.MonkeyPatch, endpoint: str) -> None:
    asked.setenv("AWS_ENDPOINT_URL", endpoint)
    assert not objectstore.is_oss("s3://lake/events")
    assert objectstore.arrow_options("s3://lake/events") == {
        "endpoint_override": endpoint,
        "request_timeout": objectstore.ANSWER_SECONDS,
    }
    assert objectstore.hadoop_conf("s3://lake/events") == {
        **EVERYWHERE,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def test_a_disk_is_in_no_store(asked: pytest.MonkeyPatch) -> None:
    asked.setenv("AWS_ENDPOINT_URL", "https://s3.oss-cn-hangzhou.aliyuncs.com")
    assert not objectstore.is_oss("file:///lake/events")


@pytest.mark.parametrize("endpoint", [None, ""])
def test_without_an_endpoint_amazon_is_asked_as_it_wants(asked: pytest.MonkeyPatch, endpoint: str | None) -> None:
    if endpoint is not None:
        asked.setenv("AWS_ENDPOINT_URL", endpoint)
    assert objectstore.arrow_options("s3://lake/events")["endpoint_override"] is None
    assert objectstore.hadoop_conf("s3://lake/events") == EVERYWHERE


def test_checksums_of_ones_own_choice_stay(asked: pytest.MonkeyPatch) -> None:
    asked.setenv("AWS_ENDPOINT_URL", "https://s3.oss-cn-hangzhou.aliyuncs.com")
    asked.setenv(objectstore.CHECKSUMS[0], "when_supported")
    asked.setenv(objectstore.CHECKSUMS[1], "")
    objectstore.arrow_options("s3://lake/events")
    assert [os.environ[name] for name in objectstore.CHECKSUMS] == ["when_supported", "when_required"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("file:///lake/s3://events", "file:///lake/s3://events"),
        ("s3://lake/events", "s3a://lake/events"),
        ("s3a://lake/oss://events", "s3a://lake/oss://events"),
        ("oss://lake/events", "s3a://lake/events"),
    ],
)
def test_hadoop_has_one_scheme_for_all_stores(path: str, found: str) -> None:
    assert objectstore.hadoop_path(path) == found


def test_a_table_in_oss_needs_to_know_where_that_is(asked: pytest.MonkeyPatch) -> None:
    with pytest.raises(TableError, match=r"AWS_ENDPOINT_URL is not set.*https://s3\.oss-REGION-internal") as caught:
        Storage("oss://lake/events").read("file")
    assert caught.value.table == "oss://lake/events"
    with pytest.raises(TableError, match="AWS_ENDPOINT_URL is not set"):
        submission(Verb.SYNC, JobOrder(ad_events("oss://lake/events").model_dump(mode="json")), "local[2]")


def test_a_quarantine_in_a_store_is_reached_from_a_table_on_disk(asked: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked.setenv("AWS_ENDPOINT_URL", "https://s3.oss-cn-hangzhou.aliyuncs.com")
    pipeline = ad_events(tmp_path, misfits="quarantine", quarantine={"path": "oss://lake/aside"})
    conf = submission(Verb.OPEN, JobOrder(pipeline.model_dump(mode="json")), "local[2]").conf
    assert conf["spark.hadoop.fs.s3a.path.style.access"] == "false"


@pytest.fixture(scope="module")
def oss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oss]:
    """A store with OSS's rules and the bucket `lake`, which the machine's variables name."""
    with oss_store("lake", tmp_path_factory.mktemp("oss")) as (variables, store), pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_REGION", *objectstore.CHECKSUMS):
            patch.setenv(name, "")
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield store


@pytest.mark.parametrize("size", [0, 1, 12 << 20])
def test_files_are_written_read_and_deleted_in_oss(oss: Oss, size: int) -> None:
    storage = Storage("oss://lake/files")
    storage.write("a/b/file", b"x" * size)
    assert storage.read("a/b/file") == b"x" * size
    storage.delete("a/b/file")
    assert storage.files("") == [] and oss.refusals == []


@pytest.mark.parametrize("seconds", [objectstore.ANSWER_SECONDS, None])
def test_a_store_that_takes_seconds_is_asked_once(
    oss: Oss, monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    """Asked twice, it brings a file back that was deleted after the second answer; Arrow's own patience shows it."""
    asked, asks, late = oss.refusal, list[str](), threading.Event()

    def refusal(client: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        if client.command == "PUT" and client.path == "/slow/file":
            asks.append(client.path)
            if len(asks) == 1:
                late.wait(4.5)
        return asked(client)

    options = {**objectstore.arrow_options("oss://lake"), "request_timeout": seconds}
    monkeypatch.setattr(objectstore, "arrow_options", lambda uri: options)
    monkeypatch.setattr(oss, "refusal", refusal)
    storage = Storage("oss://lake/slow")
    storage.write("file", b"x")
    storage.delete("file")
    assert len(asks) == (1 if seconds else 2)
    late.set()
    if seconds is None:
        until("the first request is done", lambda: storage.files("") == ["file"])
    else:
        assert storage.files("") == []


def test_a_folder_goes_from_oss_with_all_below_it_and_nothing_beside_it(oss: Oss) -> None:
    storage = Storage("oss://lake/folders")
    for name in ("a", "b/c", "b/d/e", "b/d/f/g/h", "bc/i"):
        storage.write(name, b"x")
    storage.delete_folder("b")
    storage.delete_folder("none")
    assert (sorted(storage.names("") or []), sorted(storage.files(""))) == (["a", "bc"], ["a", "bc/i"])
    assert oss.refusals == []


def test_whoever_else_deletes_or_writes_there_leaves_nothing_behind(oss: Oss) -> None:
    """Between a look at the folder and a request, each file goes or comes once."""
    storage, others = Storage("oss://lake/both"), Storage("oss://lake/both")
    names = [f"a/{number}" for number in range(30)]
    # By the others: Arrow makes no client while a request of another one is under way, and here one waits for them.
    for name in names:
        others.write(name, b"x")
    asked, went = oss.refusal, set[str]()

    def refusal(client: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        path = client.path.removeprefix("/both/")
        if client.command == "HEAD" and path in names[::3] and path not in went:
            went.add(path)
            others.delete(path)
        if client.command == "DELETE" and path == names[1] and "late" not in went:
            went.add("late")
            others.write("a/late", b"x")
        return asked(client)

    oss.refusal = refusal  # type: ignore[method-assign]
    try:
        storage.delete_folder("a")
    finally:
        oss.refusal = asked  # type: ignore[method-assign]
    assert went == {*names[::3], "late"}
    assert storage.files("") == []  # the store takes its time over folders that are empty
    oss.refusals.clear()


@pytest.mark.parametrize(
    ("without", "refused"),
    [
        ("force_virtual_addressing", "SecondLevelDomainForbidden"),
        ("checksums", "InvalidArgument"),
        ("one by one", "MissingArgument"),
    ],
)
def test_without_what_oss_needs_it_refuses(
    oss: Oss, monkeypatch: pytest.MonkeyPatch, without: str, refused: str
) -> None:
    options = {name: value for name, value in objectstore.arrow_options("oss://lake").items() if name != without}
    monkeypatch.setattr(objectstore, "arrow_options", lambda uri: options)
    if without == "one by one":
        monkeypatch.setattr(objectstore, "is_oss", lambda uri: False)
    if without == "checksums":
        monkeypatch.setenv(objectstore.CHECKSUMS[0], "when_supported")
    storage = Storage("oss://lake/without")
    with pytest.raises(TimelineUnreadable):
        storage.write("a/file", b"x")
        storage.delete_folder("a")
    assert {refusal.rpartition(" ")[2] for refusal in oss.refusals} == {refused}
    oss.refusals.clear()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_batches_commits_and_services_ask_nothing_of_oss_that_it_refuses() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.oss"], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "oss: 0 requests refused"
