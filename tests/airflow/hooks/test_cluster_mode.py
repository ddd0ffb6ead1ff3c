"""A task and its driver in cluster mode; a program stands for spark-submit and the cluster (`submits`).

The real ones are in tests/transaction/test_yarn.py and test_kubernetes.py.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_slshudi.exceptions import JobDenied, JobFailed
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hooks import spark
from airflow_provider_slshudi.hooks.spark import SparkLauncher
from airflow_provider_slshudi.spark import driver_endpoint
from airflow_provider_slshudi.spark.driver_endpoint import HOST
from airflow_provider_slshudi.spark.launch import Submission
from tests.machine import connection
from tests.pipelines import ad_events
from tests.waiting import until

Run = Callable[..., float | None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an append whose spark-submit acts as a case says."""
    stub = tmp_path / "bin" / "spark-submit"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.airflow.hooks.submits "$@"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection("spark", host="yarn", extra={"deploy-mode": "cluster"}))

    def made(case: str, show: Callable[[str], None] | None = None) -> float | None:
        variables = {"PATH": f"{stub.parent}:/usr/bin:/bin", "CASE": case}
        conf = {HOST: "127.0.0.1", "spark.files": "/etc/krb5.conf"}
        monkeypatch.setattr(spark, "submission", lambda *_, **__: Submission("slshudi append", conf, variables))
        return SparkLauncher("spark_default", show).run(Verb.APPEND, JobOrder.of(ad_events(tmp_path)), {})

    return made


def running() -> list[psutil.Process]:
    """What stands for spark-submit and has not ended."""
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "tests.airflow.hooks.submits" in child.cmdline()]


def test_the_tasks_log_has_both_and_the_manager_is_asked_for_its_own_application_alone(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: list[SparkSubmitHook] = []

    class Kept(spark._Hook):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            hooks.append(self)

    monkeypatch.setattr(spark, "_Hook", Kept)
    with caplog.at_level(logging.INFO):
        assert run("well") == 1.5, "sixty lines of the manager come after it"
    assert caplog.messages.count("4 rows in application_2_0002") == 1
    assert hooks[0]._yarn_application_id == "application_1_0001"
    assert str(hooks[0]._files).startswith("/etc/krb5.conf,")


@pytest.mark.parametrize("case, code", [("fails", 1), ("fails and is told as well", None)])
def test_a_drivers_reason_is_the_tasks_error_whatever_its_manager_says_later(
    run: Run, case: str, code: int | None
) -> None:
    with pytest.raises(JobDenied, match="TableDenied: it is another user's") as failed:
        run(case)
    assert failed.value.returncode == code and failed.value.error == "TableDenied"


def test_a_driver_whose_work_is_done_needs_no_word_of_its_manager(run: Run) -> None:
    run("fails after it was done")


@pytest.mark.parametrize("case", ["ends before its driver", "ends before its driver with an error"])
def test_a_driver_that_works_is_waited_for_after_the_end_of_spark_submit(
    run: Run, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert run(case) == 2.5
    assert caplog.messages.count("4 rows in application_1_0001") == 1
    assert caplog.text.count("the task waits for the driver") == 1


@pytest.mark.parametrize(
    "case, code",
    [
        ("ends before its driver, which does nothing and dies", None),
        ("ends before its driver with an error, which does nothing and dies", 1),
    ],
)
def test_a_driver_that_dies_after_the_end_of_spark_submit_is_lost(
    run: Run, case: str, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_endpoint, "LOST_SECONDS", 3.0)
    with pytest.raises(JobFailed, match="was not heard of for 3 seconds") as failed:
        run(case)
    assert failed.value.returncode == code


def test_what_comes_after_bytes_of_another_encoding_is_read(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run("odd bytes")
    told = capfd.readouterr()
    assert "the last word" in told.out + told.err


def test_where_no_driver_comes_the_error_says_where_it_should_have_asked(run: Run) -> None:
    with pytest.raises(
        JobFailed, match=r"no driver asked this task at 127\.0\.0\.1:\d+ .*spark\.slshudi\.access\.host"
    ) as failed:
        run("nobody comes")
    assert "finished with failed status" in str(failed.value) and failed.value.error == ""


def test_a_driver_of_another_version_is_the_tasks_error(run: Run) -> None:
    with pytest.raises(JobFailed, match=r"was refused: .*it is of version 2 of these messages"):
        run("is of another version")


@pytest.mark.parametrize(
    "case, said",
    [
        ("does not wait", "no driver asked this task"),
        ("ends without a word", "has not said here that its work is done"),
    ],
)
def test_where_spark_submit_ends_well_only_the_driver_says_that_its_work_is_done(
    run: Run, case: str, said: str
) -> None:
    with pytest.raises(JobFailed, match=said):
        run(case)


def test_a_driver_that_falls_silent_fails_the_task_whatever_its_manager_does(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_endpoint, "LOST_SECONDS", 1.0)

    def refuses(self: SparkSubmitHook) -> None:
        killed(self)
        raise ValueError("Missing the required parameter `namespace`")

    killed = SparkSubmitHook.on_kill
    monkeypatch.setattr(SparkSubmitHook, "on_kill", refuses)
    with pytest.raises(JobFailed, match="was not heard of for 1 seconds"):
        run("falls silent")
    until("the end of spark-submit", lambda: not running())


def test_a_task_whose_time_is_over_leaves_no_spark_submit(run: Run) -> None:
    class Over(BaseException):
        pass

    def over(page: str) -> None:
        raise Over(page)

    with pytest.raises(Over, match="http://node:4040"):
        run("has a page", over)
    until("the end of spark-submit", lambda: not running())
