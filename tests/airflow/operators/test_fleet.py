"""The two tasks of a fleet: what a look gives, and what a batch leaves when it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, AirflowTaskTimeout

from airflow_provider_slshudi.dag.factories import tail_dag
from airflow_provider_slshudi.exceptions import (
    JobFailed,
    LeaseHeld,
    MirrorFailed,
    SourceUnavailable,
    TableSilent,
    TimelineUnreadable,
)
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.runs import AirflowRuns
from airflow_provider_slshudi.hooks.work import work_of
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import RangeTotals, State, Transaction
from airflow_provider_slshudi.operators import fleet
from airflow_provider_slshudi.operators.fleet import SlsHudiBatchOperator, SlsHudiDrainOperator, SlsHudiLookOperator
from airflow_provider_slshudi.planning.periods import Periods
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.services import maintenance, mirrors
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.processes import this_process
from airflow_provider_slshudi.transaction import news as news_module
from airflow_provider_slshudi.transaction import settle as settle_module
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.context import GIVEN_UP, Run, Work
from airflow_provider_slshudi.transaction.dangling import Ended
from airflow_provider_slshudi.transaction.news import News
from airflow_provider_slshudi.transaction.plan import tail
from tests.airflow.operators.runs import AssetEvents, added, in_run
from tests.clock import Clock
from tests.machine import write_hourly
from tests.seen import committed

FLEET = ("fleet", "run-1")


@pytest.fixture
def ledger(ledger_connection: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("AIRFLOW_VAR_SLSHUDI_AIRFLOW", "here")
    return LedgerHook().ledger()


def batch(pipeline: str = "ad_events") -> SlsHudiBatchOperator:
    return SlsHudiBatchOperator(task_id="batch", pipeline=pipeline)


def look(*pipelines: str, run_type: str = "manual") -> list[str]:
    """What a look gives; none is left alone, since somebody may have mended something."""
    return SlsHudiLookOperator(task_id="look", pipelines=pipelines).execute(in_run(FLEET, run_type=run_type))


def skipped(ledger: Ledger) -> None:
    """A batch that finds nothing."""
    with pytest.raises(AirflowSkipException, match="nothing new"):
        batch().execute(in_run(FLEET))


def test_a_batch_that_fails_decides_what_it_left_while_its_run_goes_on(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(3)

    def fail(*_: object) -> None:
        raise JobFailed("the driver ended with exit code 1", verb="open", error="Py4JJavaError")

    monkeypatch.setattr(steps, "open_instant", fail)
    with pytest.raises(JobFailed):
        batch().execute(in_run(FLEET, states={"fleet/run-1": "running"}))
    assert ledger.live("ad_events") == []
    assert [item.state for item in ledger.last("ad_events", 10)] == [State.ABORTED]
    assert [(trouble.step, trouble.error) for trouble in ledger.troubles("ad_events")] == [("batch", "JobFailed")]
    assert look("ad_events") == ["ad_events"], "its logs are unread again"


@pytest.mark.parametrize("error", [AirflowTaskTimeout("too long"), JobFailed("no", verb="open", error="")])
def test_a_batch_that_cannot_decide_is_decided_by_the_next_run_although_its_own_goes_on(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    put(3)

    def fail(work: Work, id_: str, token: int) -> None:
        with work.heartbeat(id_, token):
            raise error

    def settled() -> None:
        batch().execute(in_run(("fleet", "run-2"), states={"fleet/run-1": "running"}))

    def cannot_resolve(*_: object) -> None:
        raise TimelineUnreadable("the store is away", table="s3://lake/ad_events")

    monkeypatch.setattr("airflow_provider_slshudi.transaction.dangling.QUIET_AFTER", timedelta())
    monkeypatch.setattr(steps, "open_instant", fail)
    with monkeypatch.context() as failing:
        # Settle takes the transaction over, and then fails.
        failing.setattr(settle_module, "resolve", cannot_resolve)
        with pytest.raises(type(error)):
            batch().execute(in_run(FLEET, states={"fleet/run-1": "running"}))
        with pytest.raises(TimelineUnreadable):
            settled()
    (left,) = ledger.live("ad_events")
    with pytest.raises(type(error)):
        settled()
    assert ledger.get(left.id).state is State.ABORTED
    assert "its task failed" in " ".join(event.detail for event in ledger.events(left.id))


def test_a_batch_names_its_process_between_its_steps_too(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(3)
    seen = []

    def step(work: Work, id_: str, token: int) -> None:
        seen.append(ledger.get(id_).process)
        with work.heartbeat(id_, token):
            pass

    def fail(*_: object) -> None:
        raise JobFailed("the driver ended with exit code 1", verb="commit", error="Py4JJavaError")

    for name in ("open_instant", "append", "record"):
        monkeypatch.setattr(steps, name, step)
    monkeypatch.setattr(steps, "commit", fail)
    with pytest.raises(JobFailed):
        batch().execute(in_run(FLEET, states={"fleet/run-1": "running"}))
    assert seen == [this_process()] * 3
    (given_up,) = ledger.last("ad_events", 10)
    assert given_up.process is None
    assert str(given_up.error).startswith(
        "batch failed: JobFailed: the driver ended with exit code 1; timeline NOTHING"
    ), "its own task decides it, and the page tells the cause"


def test_a_task_that_was_started_twice_leaves_the_other_ones_batch_alone(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(3)
    running = in_run(FLEET, states={"fleet/run-1": "running"})
    others = []

    def replaced(work: Work, id_: str, token: int) -> None:
        # The other process of the task settles what it finds of its run, plans, and works on that.
        settle_module.settle(work, AirflowRuns(running["ti"]))
        planned = tail(work)
        assert planned is not None
        ledger.heartbeat(planned.id, planned.token)
        others.append(planned)
        work.held(id_, token)

    monkeypatch.setattr(steps, "open_instant", replaced)
    with pytest.raises(AirflowFailException, match="changed hands"):
        batch().execute(running)
    (other,) = others
    assert not [event for event in ledger.events(other.id) if event.what == GIVEN_UP]
    assert ledger.get(other.id).state is State.PLANNED and ledger.get(other.id).token == other.token


def test_a_catalog_that_does_not_answer_fails_no_batch_and_is_told_again_without_new_logs(
    put: Callable[[int], None], pipelines: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pipelines / "ad_events.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\ncatalog: {{metastore: 'thrift://nowhere:9083'}}\n", encoding="utf-8")
    answers = [False, False, True]

    def sync(work: Work) -> None:
        if not answers.pop(0):
            raise JobFailed("the metastore does not answer", verb="sync", error="MetaException")

    monkeypatch.setattr(maintenance, "sync", sync)
    for left in (1, 1, 0):
        skipped(ledger)
        told = ledger.troubles("ad_events")
        assert [(trouble.step, trouble.error, trouble.waits) for trouble in told] == [
            ("sync", "JobFailed", True)
        ] * left
        assert look("ad_events") == ["ad_events"] * left
    assert answers == []


def test_a_mirror_that_fails_fails_no_batch_and_is_told(
    put: Callable[[int], None], pipelines: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (pipelines / "ad_events.yaml").open("a", encoding="utf-8") as file:
        file.write("\nmirror: {delta: {}}\n")
    answers = [False, True]

    def follow(work: Work) -> None:
        if not answers.pop(0):
            raise MirrorFailed("no answer", pipeline=work.pipeline.name, mirror="delta")

    monkeypatch.setattr(mirrors, "mirror", follow)
    for left in (1, 0):
        skipped(ledger)
        assert [trouble.step for trouble in ledger.troubles("ad_events")] == ["mirror"] * left
    assert answers == []


def test_an_idle_pipeline_whose_figures_cannot_be_sent_gets_no_task(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped(ledger)

    def broken(work: Work) -> None:
        raise OSError("no route to the collector")

    monkeypatch.setattr("airflow_provider_slshudi.operators.fleet.signal", broken)
    assert look("ad_events") == []


def test_a_look_waits_for_news_where_it_should(put: Callable[[int], None], ledger: Ledger, clock: Clock) -> None:
    skipped(ledger)

    def meanwhile(now: float) -> None:
        if now == 3:
            put(1)

    clock.meanwhile = meanwhile
    waits = SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], wait=timedelta(minutes=5))
    assert waits.execute(in_run(FLEET)) == ["ad_events"]
    assert clock.now == 3


def test_an_endless_fleet_leaves_a_pipeline_in_trouble_alone_for_a_minute(
    put: Callable[[int], None], ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped(ledger)
    put(1)
    looks: list[Work] = []
    monkeypatch.setattr(news_module, "news", lambda work, _: looks.append(work) or News())  # type: ignore[func-returns-value]
    ledger.note_trouble("ad_events", "fleet", "run-0", "batch", "DataExpired", "no", False, None)
    waits = SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], wait=timedelta(seconds=20))
    assert waits.execute(in_run(FLEET)) == []
    assert not looks, "its service may be mute"
    assert waits.execute(in_run(FLEET, run_type="manual")) == ["ad_events"], "somebody has mended something"
    assert look("ad_events", run_type="scheduled") == [], "no batch of it ever went well"
    committed(ledger, "ad_events", [Range(0, 0, 1)], "run-0")
    assert look("ad_events", run_type="scheduled") == ["ad_events"], "as others do"
    with monkeypatch.context() as earlier:
        earlier.setattr(Ledger, "now", lambda _: datetime.now(timezone.utc) - timedelta(hours=1))
        assert waits.execute(in_run(FLEET)) == ["ad_events"], "it was told by a clock that was ahead"
    monkeypatch.setattr("airflow_provider_slshudi.operators.fleet._REST", timedelta())
    assert waits.execute(in_run(FLEET)) == ["ad_events"]


def test_a_pipeline_whose_table_never_answers_has_its_own_task_say_so(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped(ledger)
    put(1)
    over, real = threading.Event(), news_module.news
    monkeypatch.setattr("airflow_provider_slshudi.operators.fleet._LOOK_SECONDS", 5.0)

    def news(work: Work, ended: Ended) -> News | None:
        if threading.current_thread().name == "slshudi-ask-ad_events":
            over.wait(60)
        return real(work, ended)

    monkeypatch.setattr(news_module, "news", news)
    try:
        assert look("ad_events") == ["ad_events"]
    finally:
        over.set()


def test_a_look_asks_no_table(put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be on a mount that never answers, and then nobody can end the process that asked."""
    skipped(ledger)

    def asked(storage: Storage) -> None:
        raise AssertionError(f"{storage} is asked")

    with monkeypatch.context() as away:
        away.setattr(Storage, "_parts", property(asked))
        assert look("ad_events") == []
        put(1)
        assert look("ad_events") == ["ad_events"]


@pytest.mark.parametrize("which", ["*", "*_quarantine/*"])
def test_a_batch_whose_table_never_answers_does_not_begin_and_rests(
    put: Callable[[int], None], ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    skipped(ledger)
    put(1)
    hangs = tmp_path / "bin" / "test"
    hangs.parent.mkdir()
    hangs.write_text(f'#!/bin/sh\ncase "$2" in {which}) exec /bin/sleep 600;; esac\n')
    hangs.chmod(0o755)
    with monkeypatch.context() as away:
        away.setenv("PATH", str(hangs.parent), prepend=":")
        away.setattr("airflow_provider_slshudi.operators.base.ANSWER_SECONDS", 0.2)
        with pytest.raises(TableSilent, match="has not answered for 0 s"):
            batch().execute(in_run(FLEET))
    [trouble] = ledger.troubles("ad_events")
    assert (trouble.step, trouble.error, trouble.waits) == ("batch", "TableSilent", True)
    committed(ledger, "ad_events", [Range(0, 0, 1)], "run-0")
    assert look("ad_events", run_type="scheduled") == []
    assert look("ad_events") == ["ad_events"], "somebody has mended something"
    # It answers by now: there is none.
    with pytest.raises(TimelineUnreadable, match="there is no table here"):
        batch().execute(in_run(("fleet", "run-2")))
    assert [trouble.error for trouble in ledger.troubles("ad_events")] == ["TimelineUnreadable"]


def test_a_batch_leaves_the_decision_to_who_is_at_it(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.transaction.context.LEASE_WAIT_SECONDS", 0.3)
    skipped(ledger)
    other = work_of("ad_events", Run("fleet", "run-0", "here"))
    with other.lease(), pytest.raises(AirflowSkipException, match="run-0"):
        batch().execute(in_run(FLEET))
    assert ledger.troubles("ad_events") == []


def test_a_look_that_is_given_up_holds_nobody_up_for_long(put: Callable[[int], None], ledger: Ledger) -> None:
    skipped(ledger)
    work = work_of("ad_events", Run("fleet", "run-0", "here"))
    with work.look_lease() as lease:
        assert lease.expires - ledger.now() <= timedelta(seconds=45)
        with pytest.raises(LeaseHeld), work.look_lease():
            pass


def test_a_catalog_that_does_not_answer_slows_down_no_endless_fleet(put: Callable[[int], None], ledger: Ledger) -> None:
    skipped(ledger)
    put(1)
    ledger.note_trouble("ad_events", "fleet", "run-0", "sync", "JobFailed", "no", True, None)
    waits = SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], wait=timedelta(seconds=20))
    assert waits.execute(in_run(FLEET, run_type="scheduled")) == ["ad_events"]


def test_a_batch_that_settle_committed_is_told_although_nothing_is_new(
    put: Callable[[int], None], ledger: Ledger, asset_events: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1)
    planned = tail(work_of("ad_events", Run("fleet", "run-0", "here")))
    assert planned is not None
    ledger.opened(planned.id, planned.token, "20261121073558122")
    totals = [RangeTotals(item, 1, 10, 1, 2) for item in ledger.ranges(planned.id)]
    ledger.prepared(planned.id, planned.token, {"files": 1}, totals)
    ledger.committed(planned.id, planned.token, "20261121073558999")
    # There is no table that these could look at.
    monkeypatch.setattr(settle_module, "settle", lambda *_: [])
    monkeypatch.setattr("airflow_provider_slshudi.transaction.plan.tail", lambda *_, **__: None)
    task = SlsHudiBatchOperator(task_id="batch", pipeline="ad_events", outlets=[AssetAlias("settled")])
    context = in_run(("fleet", "run-1"), states={"fleet/run-0": "failed"})
    assert task.execute(context) == {}, "a skipped task would lose the event"
    assert [extra["transaction"] for extra in added(context, AssetAlias("settled"))] == [planned.id]


@pytest.mark.parametrize("tail", [None, SourceUnavailable("no answer", project="ads", logstore="ads")])
def test_what_a_batch_did_not_plan_is_for_whoever_looks_next(
    put: Callable[[int], None], ledger: Ledger, tail: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(*_: object, **__: object) -> None:
        if tail is not None:
            raise tail

    skipped(ledger)
    committed(ledger, "ad_events", [Range(0, 0, 1)], "run-0")
    put(1)
    assert look("ad_events") == ["ad_events"]
    # There is no table that these could look at.
    monkeypatch.setattr(settle_module, "settle", lambda *_: [])
    monkeypatch.setattr("airflow_provider_slshudi.transaction.plan.tail", planned)
    other = SlsHudiLookOperator(task_id="look", pipelines=["ad_events"])
    later = in_run(("fleet", "run-2"), states={"fleet/run-1": "running"})
    assert other.execute(later) == []
    with pytest.raises((AirflowSkipException, SourceUnavailable)):
        batch().execute(in_run(FLEET))
    assert other.execute(later) == ["ad_events"]


def test_a_file_that_cannot_be_read_is_trouble_of_its_own_name(ledger: Ledger) -> None:
    with pytest.raises(AirflowFailException):
        batch("orders.v2").execute(in_run(FLEET))
    assert [trouble.pipeline for trouble in ledger.troubles()] == ["orders.v2"]


def test_a_batch_that_finds_nothing_ends_the_trouble_of_one_that_failed(
    put: Callable[[int], None], ledger: Ledger
) -> None:
    skipped(ledger)
    ledger.note_trouble("ad_events", "fleet", "run-0", "batch", "SourceRefused", "no", False, None)
    assert look("ad_events") == ["ad_events"]
    skipped(ledger)
    assert ledger.troubles("ad_events") == []
    assert look("ad_events") == []


def test_what_cannot_be_looked_at_comes_last_and_airflow_gets_no_more_than_it_maps(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped(ledger)
    put(1)
    assert look("amiss", "ad_events") == ["ad_events", "amiss"]
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    assert look("amiss", "ad_events") == ["ad_events"]


def test_a_file_that_is_called_otherwise_than_its_pipeline_is_refused(
    put: Callable[[int], None], pipelines: Path, ledger: Ledger
) -> None:
    (pipelines / "other.yaml").write_bytes((pipelines / "ad_events.yaml").read_bytes())
    put(1)
    assert look("ad_events", "other") == ["ad_events", "other"], "neither holds up the other"
    with pytest.raises(AirflowFailException, match="the file is called other, and its pipeline ad_events"):
        batch("other").execute(in_run(FLEET))
    assert [trouble.pipeline for trouble in ledger.troubles()] == ["other"]
    assert ledger.last("ad_events", 10) == []


def test_a_batch_that_is_only_tried_out_reserves_nothing(
    put: Callable[[int], None], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1)
    monkeypatch.setenv("AIRFLOW_TEST_MODE", "True")
    for task in (batch(), SlsHudiLookOperator(task_id="look", pipelines=["ad_events"])):
        with pytest.raises(AirflowFailException, match="plans nothing"):
            task.execute(in_run(FLEET))
    assert ledger.last("ad_events", 10) == []


def test_an_hour_that_is_complete_without_a_new_log_is_told_by_the_look(
    put: Callable[[int], None], ledger: Ledger, pipelines: Path, asset_events: AssetEvents
) -> None:
    skipped(ledger)
    file = pipelines / "ad_events.yaml"
    source = yaml.safe_load(file.read_text(encoding="utf-8"))["source"]
    write_hourly(file, pipelines.parent / "lake" / "ad_events", source=source)
    put(3)
    work = work_of("ad_events", Run(*FLEET, "here"))
    planned = tail(work)
    assert planned is not None
    begun = Periods("hour").at(int(time.time()) - 7_200)
    totals = [RangeTotals(item, len(item), 10, begun.begin, begun.begin) for item in ledger.ranges(planned.id)]
    ledger.opened(planned.id, planned.token, "20261121073558122")
    facts = {"files": 1}
    ledger.prepared(planned.id, planned.token, facts, totals, partitions={f"event_hour={begun.value}": 3})
    ledger.committed(planned.id, planned.token, "20261121073558999")

    alias, context = AssetAlias("fleet"), in_run(("fleet", "run-2"))
    later = SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], outlets=[alias])
    assert later.execute(context) == [], "no task of its own is needed"
    (extra,) = added(context, alias)
    assert extra["partitions"][begun.value] == {"times": 1, "rows": 3}
    # That task died before its success.
    context = in_run(("fleet", "run-2b"))
    SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], outlets=[alias]).execute(context)
    assert added(context, alias) == [extra]
    asset_events.add(extra)
    again = in_run(("fleet", "run-3"))
    assert SlsHudiLookOperator(task_id="look", pipelines=["ad_events"], outlets=[alias]).execute(again) == []
    assert added(again, alias) == []


@pytest.fixture
def steps_that_commit(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The steps without a driver or a table; the transactions that they have committed."""
    done: list[str] = []

    def commit(work: Work, id_: str, token: int) -> Transaction:
        ledger.opened(id_, token, f"2026112107355{len(done)}000")
        ledger.prepared(id_, token, {"files": 1}, [RangeTotals(item, 1, 10, 1, 2) for item in ledger.ranges(id_)])
        done.append(id_)
        return ledger.committed(id_, token, f"2026112107355{len(done)}001")

    for name in ("open_instant", "append", "record"):
        monkeypatch.setattr(steps, name, lambda *_: None)
    monkeypatch.setattr(steps, "commit", commit)
    monkeypatch.setattr(settle_module, "settle", lambda *_: [])
    for name in ("plan.require_agreement", "plan.require_fit", "start_positions.keep"):
        monkeypatch.setattr(f"airflow_provider_slshudi.transaction.{name}", lambda *_: None)
    monkeypatch.setattr(SlsHudiBatchOperator, "_publish", lambda *_: None)
    yield done


def with_batch(pipelines: Path, **batch: object) -> None:
    """The pipeline's file with these limits of a batch: of one log group each."""
    file = pipelines / "ad_events.yaml"
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump({**described, "batch": {"max_bytes": 1, **batch}}), encoding="utf-8")


def test_a_full_batch_is_followed_by_the_next_in_the_same_task_each_with_its_event(
    put: Callable[[int], None], pipelines: Path, steps_that_commit: list[str]
) -> None:
    with_batch(pipelines, drain="1h")
    put(4)
    task = SlsHudiBatchOperator(task_id="batch", pipeline="ad_events", outlets=[AssetAlias("settled")])
    context = in_run(FLEET)
    task.execute(context)
    assert len(steps_that_commit) == 4
    assert [extra["transaction"] for extra in added(context, AssetAlias("settled"))] == steps_that_commit


def test_each_batch_of_a_task_completes_partitions_for_what_asks_the_ledger(
    put: Callable[[int], None], pipelines: Path, steps_that_commit: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, commits_before = pipelines / "ad_events.yaml", list[int]()
    source = yaml.safe_load(file.read_text(encoding="utf-8"))["source"]
    write_hourly(file, pipelines.parent / "lake" / "ad_events", source=source)
    with_batch(pipelines, drain="1h")

    def complete(*_: object) -> list[object]:
        commits_before.append(len(steps_that_commit))
        return []

    monkeypatch.setattr("airflow_provider_slshudi.downstream.completeness.complete", complete)
    put(3)
    batch().execute(in_run(FLEET))
    assert commits_before == [1, 2, 3, 3]


def test_without_a_time_for_it_or_beyond_it_the_next_run_reads_what_is_left(
    put: Callable[[int], None], pipelines: Path, steps_that_commit: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, commit = Clock(), steps.commit
    monkeypatch.setattr(fleet, "time", clock)

    def slowly(work: Work, id_: str, token: int) -> Transaction:
        clock.now += 1_800
        return commit(work, id_, token)

    monkeypatch.setattr(steps, "commit", slowly)
    with_batch(pipelines)
    put(5)
    batch().execute(in_run(FLEET))
    assert len(steps_that_commit) == 1
    with_batch(pipelines, drain="45m")
    batch().execute(in_run(FLEET))
    assert len(steps_that_commit) == 3


def test_a_batch_that_fails_behind_others_keeps_their_events_and_is_left_to_the_next_run(
    put: Callable[[int], None],
    pipelines: Path,
    ledger: Ledger,
    steps_that_commit: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_batch(pipelines, drain="1h")
    put(3)
    commit = steps.commit

    def fail(work: Work, id_: str, token: int) -> Transaction:
        if steps_that_commit:
            raise JobFailed("no", verb="commit", error="")
        return commit(work, id_, token)

    monkeypatch.setattr(steps, "commit", fail)
    assert batch().execute(in_run(FLEET))["transaction"] == steps_that_commit[0]
    (left,) = ledger.live("ad_events")
    monkeypatch.setattr(steps, "commit", commit)
    assert any(event.what == GIVEN_UP for event in ledger.events(left.id))


def test_a_tails_drain_goes_on_behind_the_batch_and_skips_where_nothing_is_left(
    put: Callable[[int], None], pipelines: Path, steps_that_commit: list[str]
) -> None:
    with_batch(pipelines)
    assert "drain" not in tail_dag("ad_events").task_dict
    with_batch(pipelines, drain="1h")
    drain = tail_dag("ad_events").task_dict["drain"]
    assert drain.upstream_task_ids == {"batch.commit"} and isinstance(drain, SlsHudiDrainOperator)
    put(3)
    batch().execute(in_run(FLEET))
    with pytest.raises(AirflowSkipException, match="no logs are left"):
        drain.execute(in_run(FLEET))
    put(2)
    # As a plan that saw two log groups, whose batch has one of them.
    planned = tail(work_of("ad_events", Run(*FLEET, "here")))
    assert planned is not None
    steps.commit(work_of("ad_events", Run(*FLEET, "here")), planned.id, planned.token)
    assert drain.execute(in_run(FLEET)) == {"batches": 1}
    assert len(steps_that_commit) == 5
