"""Jobs through spark-submit: a failure says its reason, and no driver outlives who started it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from airflow_provider_slshudi.exceptions import (
    JobFailed,
    ManifestError,
    SlsHudiError,
    TableDenied,
    TableError,
    ValueMisfit,
)
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.handover.messages import Done, Failed, Job, Line, Message, Page, Spent, Told, encode
from airflow_provider_slshudi.spark import launch
from airflow_provider_slshudi.spark.driver.channel import Channel, Printed, SocketChannel, failure
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.spark.session import DriverSession, offered, receive
from airflow_provider_slshudi.system.processes import clock
from tests.pipelines import ad_events
from tests.waiting import ends_with_its_time, until

pytestmark = pytest.mark.long


def order(table: Path, **changes: Any) -> JobOrder:
    described = ad_events(table, **changes).model_dump(mode="json")
    return JobOrder(described, transaction="t1", token=1, instant="20260101000000000", creates=True)


def test_a_job_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as failed:
        SubprocessLauncher().run(Verb.COMMIT, order(tmp_path / "table"), {})
    assert "slshudi commit ad_events 20260101000000000 failed: ManifestError: " in str(failed.value)
    assert "no manifest for instant 20260101000000000" in str(failed.value) and "\n" not in str(failed.value)
    assert (failed.value.verb, failed.value.returncode) == ("commit", 1)
    assert failed.value.cause is ManifestError and failed.value.fields["transaction"] == "t1"
    assert "Traceback" not in failed.value.tail, "the package's own error tells all by itself"


def test_a_driver_tells_what_it_took_of_the_machine(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = SubprocessLauncher().run(Verb.OPEN, order(tmp_path / "table"), {})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The kernel knows the JVM, which it has seen end, and what ran before it to find out how to start it.
    kernel = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert told is not None and 0.3 * kernel < told < 2 * kernel


def test_the_reason_within_what_spark_says_of_a_task_is_the_packages_own_error() -> None:
    misfit = ValueMisfit("price", "double", 5, "0-1-2")
    spark = RuntimeError(
        "Job aborted due to stage failure:\nTraceback (most recent call last):\n  File x\n"
        f"airflow_provider_slshudi.exceptions.ValueMisfit: {misfit}\n\n\tat org.apache.spark.api.python"
    )
    assert failure(spark) == Failed("ValueMisfit", str(misfit))
    assert failure(ZeroDivisionError("two\nlines")) == Failed("ZeroDivisionError", "two lines")


def test_an_error_that_names_a_file_of_the_metadata_table_says_what_makes_that_anew() -> None:
    damaged = "java.lang.RuntimeException: file:/lake/t/.hoodie/metadata/files/f.hfile is not an HFile"
    full = "Caused by: java.io.IOException: No space left on device"
    assert "`slshudi table rebuild-metadata`" in failure(RuntimeError(damaged + "!" * 4000)).text
    assert "rebuild-metadata" not in failure(RuntimeError(f"{damaged}\n{full}")).text
    assert "rebuild-metadata" not in failure(RuntimeError("file:/lake/t/.hoodie/timeline/1.commit is gone")).text


SPARK = [
    "26/01/01 INFO Utils: starting",
    "java.io.IOException: disk full",
    "\tat java.base/x.Error",
    "INFO bye",
    "",
]


@pytest.mark.parametrize(
    ("verb", "code", "lines", "told"),
    [
        (Verb.OPEN, 1, SPARK, "a job ended with exit code 1: java.io.IOException: disk full"),
        (Verb.OPEN, None, SPARK[:1], "a job ended with exit code unknown: 26/01/01 INFO Utils: starting"),
        (Verb.OPEN, 2, [], "a job ended with exit code 2: it printed nothing"),
        (Verb.ROLLBACK, -9, SPARK, "a job ended with exit code -9, so it was killed"),
        (
            Verb.APPEND,
            143,
            SPARK,
            "a job ended with exit code 143, so it was killed. Nothing of it is committed; the next run's settle "
            "decides it, and its ranges are read again",
        ),
    ],
)
def test_a_job_that_gave_no_reason_is_told_in_one_line(
    verb: Verb, code: int | None, lines: list[str], told: str
) -> None:
    session = DriverSession("a job", verb)
    for line in lines:
        session.remember(line)
    with pytest.raises(JobFailed) as failed:
        session.require_done(code)
    assert str(failed.value) == told
    assert failed.value.tail == "\n".join(lines)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (Failed("ValueMisfit", "column price: 'cheap'"), ValueMisfit),
        (Failed("TableDenied", "file:///lake/clicks"), TableDenied),
        (Failed("Py4JJavaError", "an error occurred"), JobFailed),
        (Line("java.io.IOException: disk full"), JobFailed),
    ],
)
def test_a_job_that_failed_knows_the_error_that_ended_its_driver(told: Message, cause: type[SlsHudiError]) -> None:
    session = DriverSession("a job", Verb.APPEND)
    session.hear(told)
    with pytest.raises(JobFailed) as failed:
        session.require_done(1)
    assert failed.value.cause is cause


@pytest.mark.parametrize("code", [None, 0, 1, -9])
def test_work_that_is_done_is_done_whatever_its_process_ends_with(code: int | None) -> None:
    session = DriverSession("a job", Verb.COMMIT)
    session.hear(Spent(1.5))
    with pytest.raises(JobFailed):
        session.require_done(code)
    session.hear(Done())
    assert session.require_done(code) == 1.5


class Kept(Channel):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def tell(self, message: Told) -> None:
        self.told.append(message)


def failing(error: Exception) -> float:
    raise error


def test_a_failure_is_told_once_and_a_trace_printed_only_of_a_strange_error(capsys: pytest.CaptureFixture[str]) -> None:
    channel = Kept()
    channel.tell_end(lambda: failing(TableError("the table", table="t")))
    of_task = "x\nairflow_provider_slshudi.exceptions.DecodeError: no list\n\tat"
    channel.tell_end(lambda: failing(RuntimeError(of_task)))
    refused = Failed("TableError", "the table", {"table": "t", "instant": None})
    assert channel.told == [refused, Failed("DecodeError", "no list")]
    assert capsys.readouterr().out == ""
    channel.tell_end(lambda: failing(ZeroDivisionError("two")))
    assert channel.told[2:] == [Failed("ZeroDivisionError", "two")]
    assert capsys.readouterr().out.endswith("\nZeroDivisionError: two\n")


def test_a_driver_on_this_machine_gets_its_work_and_what_it_tells_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder of temporary files has a longer name than a socket may."""
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    lines, job = list[str](), Job(Verb.OPEN, order(tmp_path / "table"), {"KEY": "value"})
    session = DriverSession("a job", Verb.OPEN, lines.append)
    with offered(job, session) as task:
        assert task.parent.stat().st_mode & 0o777 == 0o700
        driver = SocketChannel.of(task)
        assert driver.job == job
        for message in (Line("said"), Spent(2.0), Done()):
            driver.tell(message)
        driver._connection.close()
        with pytest.raises(OSError):
            SocketChannel.of(task)
    assert session.require_done() == 2.0 and lines == ["said"] and not task.exists()


def test_a_link_that_airflow_does_not_take_holds_up_no_word_of_the_driver(tmp_path: Path) -> None:
    shown, held = threading.Event(), threading.Event()

    def show(page: str) -> None:
        shown.set()
        held.wait()

    session = DriverSession("a job", Verb.OPEN, show=show)
    with offered(Job(Verb.OPEN, order(tmp_path / "table")), session) as task:
        driver = SocketChannel.of(task)
        driver.tell(Page("http://node:4040"))
        driver.tell(Done())
        driver._connection.close()
    session.require_done()
    assert shown.wait(10)
    held.set()


def test_what_is_printed_while_something_is_told_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as told:
        channel = SocketChannel(Mock(), Job(Verb.OPEN, JobOrder({})))
        printed = Printed(channel)

        def send(line: bytes) -> None:
            print("a finalizer's words", file=printed)
            theirs.sendall(line)

        monkeypatch.setattr(channel, "_connection", Mock(sendall=send))
        channel.tell(Line("said"))
        channel.tell(Done())
        assert [receive(told), receive(told)] == [Line("said"), Done()]


def test_a_long_attribute_of_an_error_is_cut() -> None:
    failed = failure(TableError("the table", table="t" * 300_000))
    assert len(encode(failed)) < 5_000 and failed.fields["table"].startswith("ttt")


def test_a_driver_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    name = f"started_by_{os.getpid()}"
    script = (
        "from airflow_provider_slshudi.spark.launch import SubprocessLauncher\n"
        "from airflow_provider_slshudi.handover.job_order import Verb\n"
        "from pathlib import Path\n"
        "from tests.spark.test_launch import order\n"
        f"SubprocessLauncher().run(Verb.OPEN, order(Path({str(tmp_path / 'table')!r}), name={name!r}), {{}})\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])

    def drivers() -> list[str]:
        commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        started = [command for command in commands if "bin/java" in command and f"slshudi open {name} " in command]
        # spark-submit first runs a short JVM that only tells how to start the driver's.
        return [command for command in started if "org.apache.spark.launcher.Main" not in command]

    until("the driver starts", drivers)
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    until("the driver ends", lambda: not drivers())
    assert not (tmp_path / "table").exists(), "the driver went on to its end"


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_task_whose_time_is_over_waits_for_no_driver(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "bin" / "spark-submit"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\nsleep 60")
    driver.chmod(0o755)
    monkeypatch.setattr(launch, "submission", lambda *_: launch.Submission("open", {}, {"SPARK_HOME": str(tmp_path)}))
    given = replace(order(tmp_path / "table"), until=seconds and clock() + seconds)
    ends_with_its_time(lambda: SubprocessLauncher().run(Verb.OPEN, given, {}))
    assert not [child for child in psutil.Process().children() if str(driver) in child.cmdline()]


def test_a_machine_that_slept_through_a_drivers_time_finds_the_driver_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers stand still with the machine; the database's clock, and so the lease, does not."""
    assert clock() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as slept, launch._ended_at(slept.pid, clock() + 25):
        assert slept.poll() is None
        monkeypatch.setattr(launch, "clock", lambda: clock() + 100)
        assert slept.wait(10) == -signal.SIGKILL
