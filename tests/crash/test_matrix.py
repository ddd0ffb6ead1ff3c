"""The short form of the crash matrix: a few cases, every victim among them; `make crash-matrix` runs all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Case, Step, Victim, all_cases, woken_cases
from tests.crash.held import NotAsPlanned
from tests.crash.world import World
from tests.exact.outcome import Outcome
from tests.exact.troubles.crash import each_its_own, run_case
from tests.exact.world import log_service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

CASES = [
    Case(Step.APPEND, Point.APPEND_TASK_MARKED, Victim.WORKER),
    Case(Step.APPEND, Point.APPEND_TASK_ENDED, Victim.WOKEN),
    Case(Step.APPEND, Point.APPEND_LEFT_MANIFEST, Victim.PYTHON_DRIVER),
    Case(Step.RECORD, Point.RECORD_HALF, Victim.TASK),
    Case(Step.COMMIT, Point.COMMIT_STARTED, Victim.JVM),
    Case(Step.COMMIT, Point.COMMIT_COMPLETED, Victim.JVM),
    Case(Step.SETTLE, Point.ROLLBACK_COMPLETED, Victim.TASK),
    Case(Step.COMPACT, Point.COMPACT_STARTED, Victim.JVM),
]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Callable[[Step], World]]:
    folder = tmp_path_factory.mktemp("crash")
    with log_service(folder) as server:
        yield each_its_own(folder, spark, server)


def test_the_matrix_has_every_point_with_all_that_are_alive_there() -> None:
    cases = all_cases()
    # No batch goes on beside a change of the table's version: tests/transaction/test_version.py has its death.
    assert {case.point for case in cases} == set(Point) - {Point.VERSION_CHANGED}
    assert {case.step for case in cases} == set(Step)
    assert len(set(cases)) == len(cases)
    assert {case.victim for case in CASES} == set(Victim) - {Victim.SCHEDULER}, "the scheduler's are in the whole one"
    assert set(CASES) <= {*cases, *woken_cases()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_crash_ends_with_exact_counts_and_a_healthy_next_batch(worlds: Callable[[Step], World], case: Case) -> None:
    run_case(worlds, case, Outcome())


def test_the_same_on_an_s3_store() -> None:
    command = [sys.executable, "-m", "tests.exact", "--trouble", "crash", "--s3"]
    for case in (
        Case(Step.CLUSTER, Point.ROLLBACK_STARTED, Victim.JVM),
        Case(Step.COMMIT, Point.COMMIT_COMPLETED, Victim.JVM),
        Case(Step.APPEND, Point.APPEND_TASK_ENDED, Victim.WOKEN),
    ):
        command += ["--step", case.step.value, "--point", case.point.value, "--victim", case.victim.value]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1].startswith("crash: 4 cases"), ran.stdout + ran.stderr[-3000:]
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]


def test_a_case_whose_point_is_not_reached_fails(worlds: Callable[[Step], World]) -> None:
    with pytest.raises(NotAsPlanned, match="did not reach"):
        run_case(worlds, Case(Step.RECORD, Point.COMMIT_HALF, Victim.TASK), Outcome())
