"""Jobs through spark-submit: a failure says its reason, and no driver outlives who started it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_slshudi.exceptions import JobFailed, SlsHudiError, TableDenied, TableError, ValueMisfit
from airflow_provider_slshudi.handover.job_order import CPU, REASON, JobOrder, Verb, cpu_told
from airflow_provider_slshudi.spark import launch
from airflow_provider_slshudi.spark.driver.__main__ import last_words, reason
from airflow_provider_slshudi.spark.launch import SubprocessLauncher, job_failed
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
    assert "ended with exit code 1: ManifestError: " in str(failed.value)
    assert "no manifest for instant 20260101000000000" in str(failed.value) and "\n" not in str(failed.value)
    assert (failed.value.verb, failed.value.returncode) == ("commit", 1)
    assert "Traceback" not in failed.value.tail, "the package's own error tells all by itself"


def test_a_driver_tells_what_it_took_of_the_machine(tmp_path: Path) -> None:
    lines: list[str] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = SubprocessLauncher(say=lines.append).run(Verb.OPEN, order(tmp_path / "table"), {})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The kernel knows the JVM, which it has seen end, and what ran before it to find out how to start it.
    kernel = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert told is not None and 0.3 * kernel < told < 2 * kernel
    assert cpu_told(lines) == told


def test_a_driver_that_told_nothing_took_nobody_knows_what() -> None:
    assert cpu_told([]) is None and cpu_told(["INFO bye", f"{CPU}?"]) is None
    assert cpu_told([f"{CPU}1.5", "26/01/01 INFO Utils: ending"]) == 1.5


def test_the_reason_within_what_spark_says_of_a_task_is_the_packages_own_error() -> None:
    misfit = ValueMisfit("price", "double", 5, "0-1-2")
    spark = RuntimeError(
        "Job aborted due to stage failure:\nTraceback (most recent call last):\n  File x\n"
        f"airflow_provider_slshudi.exceptions.ValueMisfit: {misfit}\n\n\tat org.apache.spark.api.python"
    )
    assert reason(spark) == f"ValueMisfit: {misfit}"
    assert reason(ZeroDivisionError("two\nlines")) == "ZeroDivisionError: two lines"


def test_an_error_that_names_a_file_of_the_metadata_table_says_what_makes_that_anew() -> None:
    damaged = "java.lang.RuntimeException: file:/lake/t/.hoodie/metadata/files/f.hfile is not an HFile"
    assert "`slshudi table rebuild-metadata`" in reason(RuntimeError(damaged + "!" * 4000))
    assert "rebuild-metadata" not in reason(RuntimeError(f"{damaged}: No space left on device"))
    assert "rebuild-metadata" not in reason(RuntimeError("file:/lake/t/.hoodie/timeline/1.commit is gone"))


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
    failed = job_failed("a job", verb, code, lines)
    assert str(failed) == told
    assert failed.tail == "\n".join(lines)


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (f"{REASON}ValueMisfit: column price: 'cheap'", ValueMisfit),
        (f"{REASON}TableDenied: file:///lake/clicks", TableDenied),
        (f"{REASON}Py4JJavaError: an error occurred", JobFailed),
        ("java.io.IOException: disk full", JobFailed),
    ],
)
def test_a_job_that_failed_knows_the_error_that_ended_its_driver(last: str, cause: type[SlsHudiError]) -> None:
    assert job_failed("a job", Verb.APPEND, 1, ["starting", last]).cause is cause


def test_what_a_job_says_last_is_its_reason_once_and_a_trace_only_of_a_strange_error() -> None:
    assert last_words(TableError("the table", table="t")) == f"{REASON}TableError: the table"
    within = RuntimeError("Job aborted\nairflow_provider_slshudi.exceptions.DecodeError: no list\n\tat org.apache")
    assert last_words(within) == f"{REASON}DecodeError: no list"
    strange = last_words(ZeroDivisionError("two"))
    assert strange.startswith("ZeroDivisionError: two") and strange.endswith(f"\n{REASON}ZeroDivisionError: two")


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
def test_a_task_whose_time_is_over_waits_for_no_driver(tmp_path: Path, seconds: float) -> None:
    driver = tmp_path / "bin" / "spark-submit"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\nsleep 60")
    driver.chmod(0o755)
    made, given = launch.Submission("open", {}, ["open"], {"SPARK_HOME": str(tmp_path)}), order(tmp_path / "table")
    given = replace(given, until=seconds and clock() + seconds)
    ends_with_its_time(lambda: SubprocessLauncher()._by_child(made, given, "local[1]", {}, deque()))
    assert not [child for child in psutil.Process().children() if str(driver) in child.cmdline()]


def test_a_machine_that_slept_through_a_drivers_time_finds_the_driver_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers stand still with the machine; the database's clock, and so the lease, does not."""
    assert clock() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1)
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as slept, launch._ended_at(slept.pid, clock() + 25):
        assert slept.poll() is None
        monkeypatch.setattr(launch, "clock", lambda: clock() + 100)
        assert slept.wait(10) == -signal.SIGKILL
