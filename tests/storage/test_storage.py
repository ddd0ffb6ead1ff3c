"""Files of a table, written whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import TableSilent, TimelineUnreadable
from airflow_provider_slshudi.storage import files, owners
from airflow_provider_slshudi.storage.files import Storage
from tests.outage.proxy import Fault, Proxy
from tests.services import s3_store
from tests.waiting import until

CLAIM = ".hoodie/slshudi/claim.json"
FORGOTTEN = """
import gc, sys
from airflow_provider_slshudi.storage.files import Storage
storage, streams = Storage("s3://lake/forgotten"), []
for name, size in (("small", 100), ("large", 12 << 20)):
    streams = [storage.create_within(f"{name}-{when}.parquet") for when in ("collected", "at the end", "completed")]
    for stream in streams:
        stream.write(bytes(size))
    storage.complete(f"{name}-completed.parquet", streams.pop())
    streams[:1] = []
    gc.collect()
"""


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
def test_one_process_asks_a_mount_that_never_answers_and_holds_nothing_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that goes on sleeping stands for one that nobody can end."""
    began = tmp_path / "began"
    asker = tmp_path / "bin" / "test"
    asker.parent.mkdir()
    asker.write_text(
        f"#!/bin/sh\nout=$(readlink /proc/$$/fd/1)\necho $out >> {began}\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n"
    )
    asker.chmod(0o755)
    monkeypatch.setattr(owners, "private_folder", lambda: tmp_path)
    table = Storage(f"file://{tmp_path}/table")
    with monkeypatch.context() as stubbed:
        stubbed.setenv("PATH", f"{asker.parent}:{os.environ['PATH']}")
        # The first is given the time that a busy machine takes to start it.
        for seconds in (5.0, 0.2, 0.2):
            with pytest.raises(TableSilent, match=r"has not answered for .* Nothing was begun"):
                table.require_answer(seconds)
    assert began.read_text() == "/dev/null\n", "one process began, and nobody waits for the end of its output"
    with monkeypatch.context() as mounted:
        mounted.setattr(files, "_mount_of", lambda _: "the one that came in its place")
        table.require_answer(60.0)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    table.require_answer(60.0)


def test_several_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the processes ends once it sees the other one."""
    asker = tmp_path / "bin" / "test"
    asker.parent.mkdir()
    asker.write_text(f"#!/bin/sh\ntouch {tmp_path}/began.$$\nuntil [ -e {tmp_path}/both ]; do sleep 0.1; done\n")
    asker.chmod(0o755)
    monkeypatch.setattr(owners, "private_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", f"{asker.parent}:{os.environ['PATH']}")
    table = Storage(f"file://{tmp_path}/table")
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(table.require_answer, 300.0) for _ in range(2)]
        until("both", lambda: len(list(tmp_path.glob("began.*"))) == 2)
        (tmp_path / "both").touch()
        for answer in answers:
            answer.result()


def test_a_folder_is_on_the_mount_with_the_longest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
        "30 21 0:50 / /mnt/a\\040lake rw - fuse lake rw\n"
        "31 21 0:51 / /mnt/a\\040lake rw - fuse lake rw\n"
    )
    monkeypatch.setattr(files, "_MOUNTS", mounts)
    found = [files._mount_of(path) for path in ("/mnt/a lake/events", "/mnt/a lake", "/mnt/a lakeside", "/")]
    assert found == ["31", "31", "21", "21"]


def test_where_no_process_can_be_started_the_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TimelineUnreadable, match=r"file:///table: no process could be started .*'test'"):
        Storage("file:///table").require_answer(1.0)


def test_a_small_object_takes_one_request(proxy: Proxy) -> None:
    storage = Storage("s3://lake/small")
    assert storage.read(CLAIM) is None
    proxy.heal()
    storage.write(CLAIM, b"{}")
    assert [request.split()[0] for request in proxy.plan.seen] == ["PUT"]


@pytest.mark.long
def test_a_task_that_is_stopped_anywhere_while_it_writes_an_object_leaves_the_old_one_or_the_new(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        """As from the handler of a signal, which may raise between any two instructions."""

    # A stream that is closed because nobody has it any more keeps the interpreter, and with it this one's proxy.
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.store)
    storage, stopped = Storage("s3://lake/stopped"), True
    storage.write(CLAIM, b"old")
    instruction, seen = 0, set()
    while stopped:
        left, stopped, instruction = instruction, False, instruction + 1

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left, stopped
            if not frame.f_code.co_filename.endswith("/airflow_provider_slshudi/storage/files.py"):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and not stopped:
                left -= 1
                if left < 0:
                    stopped = True
                    raise Stopped
            return trace

        sys.settrace(trace)
        try:
            storage.write(CLAIM, b"new")
        except Stopped:
            pass
        finally:
            sys.settrace(None)
        seen.add(storage.read(CLAIM))
        storage.write(CLAIM, b"old")
    assert seen == {b"old", b"new"}
    assert instruction > 100, "it was stopped at each"


@pytest.mark.long
def test_a_large_object_stays_as_it_is_where_the_store_begins_no_upload_in_parts(proxy: Proxy) -> None:
    storage = Storage("s3://lake/large")
    storage.write(CLAIM, b"old")
    proxy.arm(1, Fault.GONE)
    try:
        with pytest.raises(TimelineUnreadable, match=r"claim\.json"):
            storage.write(CLAIM, bytes(11 * 1024 * 1024))
        assert proxy.plan.seen[0].startswith("POST")
    finally:
        proxy.heal()
    assert storage.read(CLAIM) == b"old"
    storage.write(CLAIM, bytes(11 * 1024 * 1024))
    assert storage.read(CLAIM) == bytes(11 * 1024 * 1024)


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


@pytest.mark.long
def test_a_file_that_nobody_completes_is_none_in_a_store_whoever_collects_its_stream(proxy: Proxy) -> None:
    ran = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert sorted(Storage("s3://lake/forgotten").names("") or []) == [
        "large-completed.parquet",
        "small-completed.parquet",
    ]


def test_a_file_that_was_written_has_its_name_on_the_disk_with_its_folders(tmp_path: Path) -> None:
    storage, synchronized = Storage(f"file://{tmp_path}"), list[tuple[Path, bool]]()
    path, original = ".hoodie/slshudi/20260131000000000/owner.json", os.fsync
    file = tmp_path / path

    def fsync(number: int) -> None:
        synchronized.append((Path(f"/proc/self/fd/{number}").readlink(), file.exists()))
        original(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        storage.write(path, b"{}")
    named = [place for place, is_named in synchronized if is_named]
    assert named == [file.parent, *list(file.parents)[1:4]]
    assert named[-1] == tmp_path
