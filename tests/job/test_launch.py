"""Jobs through spark-submit: a failure says its reason, and no driver outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from airflow_provider_slshudi.exceptions import JobFailed, ValueMisfit
from airflow_provider_slshudi.job.__main__ import reason
from airflow_provider_slshudi.job.launch import SubprocessLauncher, job_failed
from airflow_provider_slshudi.job.orders import JobOrder, Verb
from tests.pipelines import ad_events


def order(table: Path) -> JobOrder:
    return JobOrder(ad_events(table).model_dump(mode="json"), transaction="t1", token=1, instant="20260101000000000")


def test_a_job_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as failed:
        SubprocessLauncher().run(Verb.COMMIT, order(tmp_path / "table"), {})
    assert "ended with exit code 1: ManifestError: " in str(failed.value)
    assert "no manifest for instant 20260101000000000" in str(failed.value) and "\n" not in str(failed.value)
    assert (failed.value.verb, failed.value.returncode) == ("commit", 1)
    assert "Traceback" in failed.value.tail


def test_the_reason_within_what_spark_says_of_a_task_is_the_packages_own_error() -> None:
    misfit = ValueMisfit("price", "double", "cheap", "0-1-2")
    spark = RuntimeError(
        "Job aborted due to stage failure:\nTraceback (most recent call last):\n  File x\n"
        f"airflow_provider_slshudi.exceptions.ValueMisfit: {misfit}\n\n\tat org.apache.spark.api.python"
    )
    assert reason(spark) == f"ValueMisfit: {misfit}"
    assert reason(ZeroDivisionError("two\nlines")) == "ZeroDivisionError: two lines"


def test_a_job_that_gave_no_reason_is_told_by_its_last_lines() -> None:
    failed = job_failed("a job", Verb.OPEN, -9, ["one", "two"])
    assert str(failed) == "a job ended with exit code -9; its last lines:\none\ntwo"


def test_a_driver_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "from airflow_provider_slshudi.job.launch import SubprocessLauncher\n"
        "from airflow_provider_slshudi.job.orders import Verb\n"
        "from pathlib import Path\n"
        "from tests.job.test_launch import order\n"
        f"SubprocessLauncher().run(Verb.OPEN, order(Path({str(tmp_path / 'table')!r})), {{}})\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])

    def drivers() -> list[str]:
        commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
        started = [command for command in commands if "bin/java" in command and str(tmp_path) in command]
        # spark-submit first runs a short JVM that only tells how to start the driver's.
        return [command for command in started if "org.apache.spark.launcher.Main" not in command]

    wait_until(lambda: bool(drivers()))
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    wait_until(lambda: not drivers())
    assert not (tmp_path / "table").exists(), "the driver went on to its end"


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)
