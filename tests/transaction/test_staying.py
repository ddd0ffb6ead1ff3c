"""Small batches are appended by the process that stays: what it does, what it leaves to a driver, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_provider_slshudi.exceptions import JobFailed
from airflow_provider_slshudi.handover.batch_files import Attempt
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.planning.windows import MOST_BYTES_PER_GROUP
from airflow_provider_slshudi.spark import launch
from airflow_provider_slshudi.spark.launch import (
    RESIDENT,
    RESIDENT_APPEND_BYTES,
    RESIDENT_UPSERT_BYTES,
    SubprocessLauncher,
    stays,
    submission,
)
from airflow_provider_slshudi.spark.resident import OWNER
from airflow_provider_slshudi.spark.runtime import DAEMON
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.views import history
from tests.pipelines import ad_events, customers, upserted_often
from tests.residents import apart, drivers, jvm
from tests.scenarios import Scenario
from tests.transaction.checks import assert_exact, phase
from tests.transaction.states import settled
from tests.waiting import until

pytestmark = pytest.mark.long

APPENDS = """
import json, sys
from airflow_provider_slshudi.spark.launch import SubprocessLauncher
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
order, secrets = json.load(sys.stdin)
SubprocessLauncher(say=lambda line: print(line, flush=True), resident=True).run(Verb.APPEND, JobOrder(**order), secrets)
"""


PLANTED = "a-secret-of-another-connection"
UNKNOWN = 10 * (1 + RESIDENT_APPEND_BYTES // MOST_BYTES_PER_GROUP)
"""Logs in so many groups, of shards that told nothing so far, that they may be too large for the process."""


class Told:
    """A launcher that keeps what was said, and by whom each verb was run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.runs: list[tuple[Verb, bool]] = []
        self._launcher = SubprocessLauncher(say=self.lines.append, resident=True)

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        before = len(self.lines)
        try:
            return self._launcher.run(verb, order, secrets)
        finally:
            self.runs.append((verb, any("by resident process" in line for line in self.lines[before:])))

    def appends(self) -> list[bool]:
        """Of each append, whether a process that stays ran it."""
        return [stayed for verb, stayed in self.runs if verb is Verb.APPEND]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's resident processes are found."""
    tmp_path_factory.getbasetemp()  # before it would be made in the folder that goes
    with apart() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_SLS_DEFAULT", f"sls://somebody:{PLANTED}@host")
        yield made


@pytest.fixture
def told() -> Told:
    return Told()


def everybody(folder: Path) -> set[psutil.Process]:
    """The resident processes with their Python workers."""
    found = drivers(folder)
    children = (child for process in found for child in process.children(recursive=True))
    # The JVM also has children for a moment, to change a file's mode.
    return {*found, *(child for child in children if is_worker(child))}


def is_worker(process: psutil.Process) -> bool:
    """Whether it is a Python worker, or what forks them."""
    try:
        return DAEMON in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie counts as such
        return False


def shown_of(processes: Iterable[psutil.Process]) -> str:
    """All that a system shows of processes: arguments and environments."""
    return " ".join(word for process in processes for word in (*process.cmdline(), *process.environ().values()))


@pytest.mark.parametrize("described", [ad_events, upserted_often], ids=["append", "upsert"])
def test_a_batch_whose_size_is_known_and_small_needs_no_start_of_spark(
    folder: Path, scenario: Callable[..., Scenario], told: Told, described: Callable[..., Any]
) -> None:
    pipeline = scenario(shards=1, launcher=told, described=described)
    for number, count in enumerate((UNKNOWN, 10, 10)):
        pipeline.put(count, first=UNKNOWN * number)  # gaps between their numbers matter to nobody
        assert pipeline.batch(f"run-{number}").state is State.COMMITTED
    assert told.appends() == [False, True, True], "nobody knows how large the first one is"
    last, _, first = history.batches(pipeline.work.ledger.history(pipeline.work.pipeline.name, 3))
    took = [batch.cost.cpu["append"] for batch in (first, last)]
    assert took[0] is not None and took[1] is not None
    assert 0 < took[1] < 0.7 * took[0], "what other jobs of the process took is theirs"
    shown = shown_of(everybody(folder)) + "".join(path.read_text() for path in folder.glob("*.log"))
    secret = pipeline.work.connect().connection.access_key_secret.reveal()
    assert DAEMON in shown and secret not in shown and PLANTED not in shown


def test_rows_of_both_ways_are_counted_exactly(folder: Path, scenario: Callable[..., Scenario], told: Told) -> None:
    pipeline = scenario(launcher=told)
    pipeline.put(UNKNOWN)
    pipeline.batch("run-1")
    for number in range(2):
        pipeline.put(20, first=UNKNOWN + 20 * number)
        pipeline.batch(f"run-{number + 2}")
    assert_exact(pipeline, UNKNOWN + 40)
    assert told.appends() == [False, True, True, True]


def test_large_batches_that_follow_one_another_have_one_process_of_their_own(
    folder: Path, scenario: Callable[..., Scenario], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_FOLLOWING_SECONDS", 10.0)
    pipeline = scenario(shards=1, launcher=told)
    pipeline = replace(pipeline, work=replace(pipeline.work, drains=True))
    for number in range(2):
        pipeline.put(UNKNOWN, first=UNKNOWN * number)
        monkeypatch.setattr(launch, "RESIDENT_APPEND_BYTES", number)
        assert pipeline.batch(f"run-{number}").state is State.COMMITTED
    assert told.appends() == [True, True]
    assert_exact(pipeline, 2 * UNKNOWN)

    def own() -> list[psutil.Process]:
        return [process for process in drivers(folder) if OWNER in process.environ()]

    assert len({process.environ()[OWNER] for process in own()}) == 1 and len(own()) == 2, "a JVM, and its Python"
    until("it ends, since no batch follows", lambda: not own())
    assert drivers(folder), "what serves all jobs stays"


def test_what_a_task_refuses_is_told_and_no_other_task_of_it_goes_on(
    folder: Path, scenario: Callable[..., Scenario], told: Told
) -> None:
    pipeline = scenario(shards=1, misfits="fail", launcher=told)
    pipeline.put(9, first=1)
    pipeline.batch("run-1")
    pipeline.put(1, first=10)  # its clicks are no number
    before = everybody(folder)
    with pytest.raises(JobFailed, match=r"ValueMisfit: column clicks: a value of 4 bytes of log .* is no bigint"):
        pipeline.batch("run-2")
    assert told.appends() == [True, True]
    until("all of the process ends", lambda: not any(process.is_running() for process in before))
    assert settled(pipeline, "run-3") == [Decision.ROLL_BACK_AND_ABORT]


def test_an_append_ends_with_the_task_that_asked_for_it_and_is_undone(
    folder: Path, scenario: Callable[..., Scenario], told: Told
) -> None:
    pipeline = scenario(launcher=told)
    pipeline.put(20)
    pipeline.batch("run-1")
    pipeline.put(20, first=20)
    opened = pipeline.open(pipeline.by("run-2"))
    running = everybody(folder)
    jvm(folder).suspend()  # so that the append is not over before its task is
    digest = pipeline.work.ledger.get(opened.id).order_digest
    of = {"transaction": opened.id, "token": opened.token, "instant": opened.instant}
    order = pipeline.work.order(**of, digest=digest, size=1.0)
    secrets = pipeline.work.connect().connection.to_env()
    with subprocess.Popen(
        [sys.executable, "-c", APPENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as task:
        assert task.stdin is not None and task.stdout is not None
        task.stdin.write(json.dumps([asdict(order), secrets]))
        task.stdin.close()
        next(line for line in task.stdout if "by resident process" in line)
        task.kill()
    until("all of the process ends", lambda: not any(process.is_running() for process in running))
    assert phase(pipeline, opened) is not Phase.COMPLETED
    assert settled(pipeline, "run-3") == [Decision.ROLL_BACK_AND_ABORT]
    assert_exact(pipeline, 40)


@pytest.mark.parametrize(
    ("size", "master", "changes", "stayed"),
    [
        (RESIDENT_APPEND_BYTES, "local[2]", {}, True),
        (RESIDENT_APPEND_BYTES + 1, "local[2]", {}, False),
        (None, "local[2]", {}, False),
        (None, "spark://host:7077", {}, False),
        (1.0, "spark://host:7077", {}, False),
        (1.0, "local[2]", {"spark": {"conf": {"spark.driver.memory": "4g"}}}, False),
        (1.0, "local[2]", {"checks": [{"name": "dear", "every": "price > 1"}]}, False),
    ],
    ids=["small", "larger", "unknown", "unknown, a cluster's", "a cluster's", "own settings", "checks"],
)
def test_what_stays_and_what_has_a_driver_of_its_own(
    tmp_path: Path, size: float | None, master: str, changes: dict[str, Any], stayed: bool
) -> None:
    order = JobOrder(ad_events(tmp_path, **changes).model_dump(mode="json"), size=size)
    assert stays(Verb.APPEND, order, master) is stayed


@pytest.mark.parametrize(("described", "stayed"), [(ad_events, True), (upserted_often, False)], ids=["", "an upsert"])
def test_a_large_batch_stays_where_others_follow_it_and_a_task_has_one_try(
    tmp_path: Path, described: Callable[..., Any], stayed: bool
) -> None:
    order = JobOrder(described(tmp_path).model_dump(mode="json"), drains=True)
    for master in ("local", "local[8]", "local[*]"):
        assert stays(Verb.APPEND, order, master) is stayed
    for master in ("local[2,4]", "local-cluster[2,1,1024]"):
        assert not stays(Verb.APPEND, order, master)


@pytest.mark.parametrize(
    ("type_", "size", "stayed"),
    [
        ("merge_on_read", RESIDENT_UPSERT_BYTES, True),
        ("merge_on_read", RESIDENT_UPSERT_BYTES + 1, False),
        ("copy_on_write", 1.0, False),
    ],
)
def test_an_upsert_that_is_large_or_may_rewrite_a_whole_table_has_a_driver_of_its_own(
    tmp_path: Path, type_: str, size: float, stayed: bool
) -> None:
    order = JobOrder(customers(tmp_path, type_).model_dump(mode="json"), size=size)
    assert stays(Verb.APPEND, order, "local[2]") is stayed


@pytest.mark.parametrize(
    ("limits", "sized"),
    [
        ({}, True),
        ({"read_bytes_per_second": 1_000_000}, False),
        ({"total_bytes_per_second": 1_000_000}, False),
        ({"total_bytes_per_second": 2_000_000}, True),
    ],
)
def test_what_a_limit_holds_up_for_long_has_a_driver_of_its_own(
    scenario: Callable[..., Scenario], limits: dict[str, int], sized: bool
) -> None:
    """A log group whose size nobody knows may have 10 MiB."""
    pipeline = scenario(shards=1)
    pipeline.put(10)
    planned = plan.tail(pipeline.work)
    assert planned is not None
    given = pipeline.work.pipeline
    held_up = given.model_copy(update={"source": given.source.model_copy(update=limits)})
    work = replace(pipeline.work, pipeline=held_up)
    assert steps.size_of(work, planned) == (MOST_BYTES_PER_GROUP if sized else None)


def test_a_backfill_reads_by_its_share_of_the_limits_and_the_tail_by_all_of_them(
    scenario: Callable[..., Scenario],
) -> None:
    pipeline = scenario(shards=1)
    given = pipeline.work.pipeline
    limits = {"backfill_share": 0.25, "total_bytes_per_second": 2_000_000}
    shared = given.model_copy(update={"source": given.source.model_copy(update=limits)})
    work = replace(pipeline.work, pipeline=shared)
    pipeline.put(20)
    first = work.connect().begin(0)
    seen = []
    other = replace(work, run=replace(work.run, run_id="run-2"))
    for planned in (plan.backfill(work, plan.BackfillRequest({0: (first, first + 1)})), plan.tail(other)):
        assert planned is not None
        instant = steps.open_instant(work, planned.id, planned.token)
        order = Attempt(work.storage, planned.id, instant, planned.token).order(
            work.ledger.get(planned.id).order_digest
        )
        source = order.described.source
        seen.append((source.read_bytes_per_second, source.reads_per_second, source.total_bytes_per_second))
    assert seen == [(2_500_000, 25, 500_000), (10_000_000, 100, 2_000_000)]


def test_a_cluster_that_loses_an_executor_may_try_a_stage_again(tmp_path: Path) -> None:
    order = JobOrder(customers(tmp_path).model_dump(mode="json"))
    once = "spark.stage.maxConsecutiveAttempts"
    assert submission(Verb.APPEND, order, RESIDENT).conf[once] == "1"
    assert once not in submission(Verb.APPEND, order, "spark://host:7077").conf
