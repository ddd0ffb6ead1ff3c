"""Files of a table, written whole or not at all."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.storage import Storage
from tests.outage.proxy import Fault, Proxy
from tests.services import s3_store

CLAIM = ".hoodie/slshudi/claim.json"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """A way to an S3 store with the bucket `lake`."""
    with (
        s3_store("lake") as variables,
        Proxy(variables["AWS_ENDPOINT_URL"]).running() as proxy,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {**variables, "AWS_ENDPOINT_URL": proxy.url}.items():
            patch.setenv(name, value)
        yield proxy


@pytest.mark.parametrize("via", [None, ".hoodie/slshudi/20260131000000000"])
def test_a_file_that_could_not_be_written_leaves_nothing_behind(tmp_path: Path, via: str | None) -> None:
    storage = Storage(f"file://{tmp_path}")
    # A folder stands where the file is to be, so all but the last step is done.
    in_the_way = tmp_path / CLAIM
    (in_the_way / "taken").mkdir(parents=True)
    with pytest.raises(TimelineUnreadable, match=r"claim\.json"):
        storage.write(CLAIM, b"{}", via=via)
    assert list(tmp_path.rglob("*.tmp")) == []
    in_the_way.joinpath("taken").rmdir()
    in_the_way.rmdir()
    storage.write(CLAIM, b"{}", via=via)
    assert in_the_way.read_bytes() == b"{}"


@pytest.mark.long
def test_a_task_that_is_stopped_while_it_writes_an_object_leaves_a_whole_one(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    storage = Storage("s3://lake/stopped")
    storage.write(CLAIM, b"old")
    filesystem = storage.filesystem

    class Stopping:
        type_name = filesystem.type_name

        def open_output_stream(self, path: str) -> Any:
            opened = filesystem.open_output_stream(path)
            # Somebody is in a hurry, and asks twice.
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.2)
            return opened

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "filesystem", Stopping())
            with pytest.raises(Stopped):
                storage.write(CLAIM, b"new")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert storage.read(CLAIM) == b"new"


@pytest.mark.long
def test_a_machine_without_threads_is_a_fault_of_the_file(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    storage = Storage("s3://lake/threads")
    assert storage.read(CLAIM) is None
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(TimelineUnreadable, match=r"claim\.json: no thread to write with"):
            storage.write(CLAIM, b"{}")


@pytest.mark.long
def test_a_store_that_refuses_the_end_of_a_file_is_no_bare_error_of_the_system(proxy: Proxy) -> None:
    storage = Storage("s3://lake/refused")
    stream = storage.create("a.parquet")
    stream.write(b"content")
    proxy.arm(1, Fault.GONE)
    try:
        with pytest.raises(TimelineUnreadable, match=r"refused/a\.parquet"):
            storage.complete("a.parquet", stream)
        with pytest.raises(TimelineUnreadable, match=r"refused/a\.parquet"):
            storage.size("a.parquet")
    finally:
        proxy.heal()
    assert storage.read("a.parquet") is None
