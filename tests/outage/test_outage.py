"""A store that fails now and then; `make outage` fails at every request of a commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.storage.files import Storage
from tests.machine import variables
from tests.outage.proxy import Fault, Proxy
from tests.services import s3_store


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with (
        s3_store("outage") as store,
        Proxy(store["AWS_ENDPOINT_URL"]).running() as made,
        variables({**store, "AWS_ENDPOINT_URL": made.url}),
    ):
        yield made


@pytest.mark.parametrize("content", [b"", b"small", b"x" * 100_000])
def test_a_small_file_is_written_by_one_request_and_read_by_one(proxy: Proxy, content: bytes) -> None:
    storage, plan = Storage("s3a://outage/small"), proxy.heal()
    storage.write("file", content)
    assert [request.split()[0] for request in plan.seen] == ["PUT"]
    with storage.create("stream") as stream:
        stream.write(content)
    assert storage.read("file") == storage.read("stream") == content


def test_a_large_file_is_written_in_parts(proxy: Proxy) -> None:
    storage, content = Storage("s3a://outage/large"), b"0123456789abcdef" * 1_000_000
    storage.write("file", content)
    assert storage.read("file") == content


def test_a_store_that_is_gone_says_nothing_about_files(proxy: Proxy) -> None:
    storage = Storage("s3a://outage/gone")
    storage.write("file", b"there")
    proxy.arm(1, Fault.GONE)
    try:
        for asked in (lambda: storage.read("file"), lambda: storage.names(""), lambda: storage.exists("file")):
            with pytest.raises(TimelineUnreadable):
                asked()
        with pytest.raises(TimelineUnreadable):
            storage.write("file", b"other")
    finally:
        proxy.heal()
    assert storage.read("file") == b"there"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.CUT])
def test_a_single_fault_is_not_seen(proxy: Proxy, fault: Fault) -> None:
    storage = Storage(f"s3a://outage/{fault.name}")
    plan = proxy.arm(1, fault)
    storage.write("file", b"content")
    assert plan.hit and len(plan.seen) > 1
    proxy.arm(1, fault)
    assert storage.read("file") == b"content"
    proxy.heal()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_requests_of_a_step_fail_and_nothing_is_lost_or_doubled() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.exact",
        "--trouble",
        "outage",
        "--step",
        "record",
        "--fault",
        "mute",
        "--every",
        "10",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 lost, 0 doubled, 0 jammed, 0 failed otherwise")
