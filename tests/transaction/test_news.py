"""A look tells whether a run of the pipeline has something to do; it keeps what it saw, as a plan does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import (
    BatchUnderWay,
    PipelineConflict,
    SourceRefused,
    SourceUnavailable,
    TailUnderWay,
)
from airflow_provider_slshudi.ledger.engine import migrate, now, open_engine
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import GONE, Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.system.secrets import Secret
from airflow_provider_slshudi.transaction import news as news_module
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Run, Work
from airflow_provider_slshudi.transaction.dangling import claimant
from airflow_provider_slshudi.transaction.news import LEFT, News, await_news, let_go, news
from airflow_provider_slshudi.transaction.settle import settle
from tests.clock import Clock
from tests.local.sdk import by_ip
from tests.pipelines import ad_events
from tests.scenarios import PROJECT, Scenario, SessionLauncher
from tests.seen import committed

WEEK = 7 * 86_400


def over(run: Run) -> bool:
    return True


def still_there(run: Run) -> bool:
    return False


@pytest.fixture
def make(server: LocalSls, tmp_path: Path) -> Iterator[Callable[[], Scenario]]:
    """Makes a pipeline over an empty logstore, which nobody has read; its jobs run nowhere."""
    logstore, engine = tmp_path.name.replace("_", "-")[:50], open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    migrate(engine)

    def made() -> Scenario:
        client = by_ip(server.connection())
        client.create_logstore(PROJECT, logstore, ttl=7, shard_count=2)
        pipeline = ad_events(tmp_path / "table", source={"project": PROJECT, "logstore": logstore})
        nowhere: SessionLauncher = SessionLauncher(None)  # type: ignore[arg-type]

        def connect() -> LogService:
            return LogService(server.connection(), PROJECT, logstore, patience=Patience(5))

        return Scenario(Work(pipeline, Ledger(engine), nowhere, connect, Run("fleet", "run-1")), client)

    yield made
    engine.dispose()


def idle(scenario: Scenario) -> Scenario:
    """With its shards known, and nothing unread."""
    assert plan.tail(scenario.work) is None
    return scenario


def test_a_pipeline_that_never_ran_has_something_to_do(make: Callable[[], Scenario]) -> None:
    work = make().work
    assert news(work, over) == News()
    assert work.ledger.shards(work.pipeline.name) == [], "the first run makes it known"


def test_where_nothing_came_there_is_none_and_pages_know_that_somebody_looked(make: Callable[[], Scenario]) -> None:
    work = idle(make()).work
    before = work.ledger.backlog_samples(work.pipeline.name, 10)
    assert news(work, over) is None
    after = work.ledger.backlog_samples(work.pipeline.name, 10)
    assert len(after) == len(before) + 1 and after[0].unread == 0


def test_unread_logs_are_news_which_are_the_more_urgent_the_sooner_they_expire(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    work = scenario.work
    scenario.put(30)
    found = news(work, over)
    assert found is not None
    assert time.time() - 60 < found.since < time.time() + 1
    assert found.expires == found.since + WEEK
    assert sorted([News(), found, News(found.expires - 1, found.since), LEFT])[::3] == [LEFT, News()]
    assert plan.tail(work) is not None


def test_a_batch_that_an_earlier_run_left_comes_before_all_news(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.transaction.dangling.QUIET_AFTER", timedelta(0))
    scenario = idle(make())
    scenario.put(10)
    left = plan.tail(scenario.work)
    assert left is not None
    later = replace(scenario.work, run=Run("fleet", "run-2"))
    assert news(later, over) == LEFT
    assert [item.transaction for item in settle(later, lambda run: True)] == [left.id]
    found = news(later, over)
    assert found is not None and found > LEFT, "its logs are unread again"


def beside_a_batch_of_another_dag(scenario: Scenario) -> tuple[Work, Transaction]:
    scenario.put(10)
    planned = plan.tail(replace(scenario.work, run=Run("backfill", "run-1")))
    assert planned is not None
    return scenario.work, planned


def test_what_another_dag_works_on_is_no_news(make: Callable[[], Scenario]) -> None:
    work, planned = beside_a_batch_of_another_dag(idle(make()))
    work.ledger.heartbeat(planned.id, planned.token)
    assert news(work, still_there) is None


def test_a_batch_that_waits_in_another_dag_is_nothing_that_a_run_could_decide(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_slshudi.transaction.dangling.QUIET_AFTER", timedelta(0))
    work, _ = beside_a_batch_of_another_dag(idle(make()))
    assert news(work, still_there) is None
    assert news(work, over) == LEFT


def test_where_batches_upsert_each_other_one_is_waited_for(make: Callable[[], Scenario]) -> None:
    work, _ = beside_a_batch_of_another_dag(idle(make()))
    table = work.pipeline.table.model_copy(update={"upsert": object()})
    upserts = replace(work, pipeline=work.pipeline.model_copy(update={"table": table}))
    with pytest.raises(BatchUnderWay):
        news(upserts, still_there)


def test_what_a_failed_batch_would_have_read_is_news_to_the_next_run(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    first, second = scenario.work, replace(scenario.work, run=Run("fleet", "run-2"))
    committed(first.ledger, first.pipeline.name, [Range(0, 0, 1)], "run-0")
    scenario.put(30)
    assert news(first, still_there) is not None
    let_go(second)
    assert news(second, still_there) is None, "only the holder lets go"
    let_go(first)
    assert news(second, still_there) is not None


def test_a_claim_by_a_clock_that_was_ahead_counts_for_nothing(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = idle(make())
    first, second = scenario.work, replace(scenario.work, run=Run("fleet", "run-2"))
    committed(first.ledger, first.pipeline.name, [Range(0, 0, 1)], "run-0")
    scenario.put(30)
    assert news(first, still_there) is not None
    monkeypatch.setattr(
        "airflow_provider_slshudi.ledger.transactions.now", lambda connection: now(connection) - timedelta(minutes=1)
    )
    assert news(second, still_there) is not None


def test_a_pipeline_in_trouble_has_something_to_do_until_a_task_of_its_own_ends_that(
    make: Callable[[], Scenario],
) -> None:
    work = idle(make()).work
    name, ledger = work.pipeline.name, work.ledger
    for dag, step in (("another", "batch"), ("fleet", "append")):
        ledger.note_trouble(name, dag, "run-1", step, "SourceRefused", "no", False, None)
    assert news(work, over) is None, "no task of a fleet would end these"
    ledger.note_trouble(name, "fleet", "run-1", "batch", "SourceRefused", "no", False, None)
    assert news(work, over) is not None
    ledger.clear_troubles(name, "fleet", "batch")
    assert news(work, over) is None


def test_a_table_that_nobody_looked_at_for_an_hour_is_looked_at(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = idle(make()).work
    assert news(work, over) is None
    monkeypatch.setattr("airflow_provider_slshudi.transaction.news.SETTLED_EACH", timedelta(0))
    assert news(work, over) == News()


def test_a_shard_that_was_split_while_nothing_came_is_known(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    work, source = scenario.work, scenario.work.pipeline.source
    scenario.client.split_shard(source.project, source.logstore, 0, "2" + "0" * 31)
    assert news(work, over) is not None, "a plan asks the table for what it kept of the new ones"
    assert plan.tail(work) is None and news(work, over) is None
    assert len(work.ledger.shards(work.pipeline.name)) == 4
    assert {shard.status for shard in work.ledger.shards(work.pipeline.name)} == {"readonly", "readwrite"}


def test_what_came_is_counted_once_and_grows_older(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    work, name = scenario.work, scenario.work.pipeline.name
    scenario.put(30)
    first = news(work, over)
    second = news(work, over)
    # The first takes the look before for the time; later ones ask, and are told when it came.
    assert first is not None and second is not None
    assert 0 <= second.since - first.since == second.expires - first.expires <= 10
    assert news(work, over) == second
    assert plan.tail(work) is not None
    assert sum(seen.came or 0 for seen in work.ledger.backlog_samples(name, 10)) == 3


def test_where_somebody_decides_at_the_moment_the_next_look_is_soon_enough(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    scenario.put(10)
    with scenario.work.lease():
        assert news(replace(scenario.work, run=Run("fleet", "run-2")), over) is None


def test_what_another_run_of_the_fleet_works_on_is_told(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    scenario.put(10)
    planned = plan.tail(scenario.work)
    assert planned is not None
    scenario.work.ledger.heartbeat(planned.id, planned.token)
    next_run = replace(scenario.work, run=Run("fleet", "run-2"))
    with pytest.raises(TailUnderWay, match="run run-1 of fleet works on transaction"):
        news(next_run, still_there)
    assert news(next_run, over) == LEFT, "settle decides it at once, too"


def test_while_the_run_is_there_that_found_the_news_no_other_finds_them(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    first, second = scenario.work, replace(scenario.work, run=Run("fleet", "run-2"))
    # A batch that was committed before.
    ledger, name = first.ledger, first.pipeline.name
    committed(ledger, name, [Range(0, 0, 1)], "run-0")
    scenario.put(30)
    assert news(first, still_there) is not None
    assert news(second, still_there) is None
    assert news(first, still_there) is not None, "its look may be repeated"
    assert news(second, over) is not None
    newest = ledger.last(name, 1)[0]
    reservations = [
        event for event in ledger.events(newest.id) if event.detail in (claimant(first.run), claimant(second.run))
    ]
    assert len(reservations) == 1, "a pipeline in trouble is reserved each minute"
    # The next batch is anybody's.
    committed(ledger, name, [Range(0, 1, 2)], "run-2")
    assert news(first, still_there) is not None


def test_a_shard_that_is_gone_is_news_once(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    work, name = scenario.work, scenario.work.pipeline.name
    lost = replace(work.ledger.shards(name)[0], id=7, status="readonly")
    work.ledger.save_shards(name, [lost])
    assert news(work, over) == News()
    work.ledger.save_shards(name, [replace(lost, status=GONE)])
    assert news(work, over) is None


def test_a_service_that_refuses_says_so(make: Callable[[], Scenario], server: LocalSls) -> None:
    work = idle(make()).work
    refused = replace(server.connection(), access_key_secret=Secret("another"))
    service = LogService(refused, PROJECT, str(work.pipeline.source.logstore), patience=Patience(5))
    with pytest.raises(SourceRefused):
        news(replace(work, connect=lambda: service), over)


def test_who_cannot_be_asked_ends_no_wait_and_keeps_nobody_from_news(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(news_module, "time", clock)

    def fail() -> LogService:
        raise SourceUnavailable("no answer", project=PROJECT, logstore="ads")

    scenario = idle(make())
    mute = replace(scenario.work, connect=fail)
    await_news([mute], 15)
    assert clock.now == 15

    def meanwhile(now: float) -> None:
        if now == 18:
            scenario.put(10)

    clock.meanwhile = meanwhile
    await_news([mute, scenario.work], 15)
    assert clock.now == 18


def test_a_service_that_turned_mute_keeps_nobody_from_news(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, over = Clock(), threading.Event()
    monkeypatch.setattr(news_module, "time", clock)
    monkeypatch.setattr(news_module, "_ANSWER_SECONDS", 0.5)
    scenario = idle(make())

    class Mute(LogService):
        def end_if_there(self, shard: int) -> int | None:
            over.wait(120)
            return None

    source = scenario.work.pipeline.source
    mute = Mute(scenario.work.connect().connection, PROJECT, str(source.logstore))

    clock.meanwhile = lambda now: scenario.put(10)
    await_news([*[replace(scenario.work, connect=lambda: mute)] * 12, scenario.work], 60)
    assert clock.now < 60
    over.set()


def test_by_a_file_that_names_another_logstore_nothing_is_kept(make: Callable[[], Scenario]) -> None:
    """Somebody edited it, or copied it and left the name."""
    scenario = idle(make())
    work, name = scenario.work, scenario.work.pipeline.name
    before = work.ledger.shards(name)
    committed(work.ledger, name, [Range(0, 0, 1)], "run-0")
    client, other = scenario.client, f"{work.pipeline.source.logstore}-2"
    client.create_logstore(PROJECT, other, ttl=7, shard_count=5)
    source = work.pipeline.source.model_copy(update={"logstore": other})
    wrong = replace(
        work,
        pipeline=work.pipeline.model_copy(update={"source": source}),
        connect=lambda: LogService(work.connect().connection, PROJECT, other, patience=Patience(5)),
    )
    with pytest.raises(PipelineConflict):
        news(wrong, over)
    assert work.ledger.shards(name) == before
    scenario.put(10)
    assert news(replace(work, run=Run("fleet", "run-2")), still_there) is not None, "nor does it claim what is there"


def test_one_run_is_told_of_a_service_that_does_not_answer(make: Callable[[], Scenario]) -> None:
    scenario = idle(make())
    work = scenario.work
    committed(work.ledger, work.pipeline.name, [Range(0, 0, 1)], "run-0")

    def fail() -> LogService:
        raise SourceUnavailable("no", project=PROJECT, logstore="logs")

    first = replace(work, connect=fail)
    with pytest.raises(SourceUnavailable):
        news(first, still_there)
    assert news(replace(first, run=Run("fleet", "run-2")), still_there) is None


def test_a_look_by_a_clock_that_was_ahead_counts_for_nothing(
    make: Callable[[], Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = idle(make()).work
    assert news(work, over) is None
    monkeypatch.setattr("airflow_provider_slshudi.transaction.news.SETTLED_EACH", timedelta(days=1))
    right = Ledger.now
    monkeypatch.setattr(Ledger, "now", lambda ledger: right(ledger) - timedelta(hours=1))
    assert news(work, over) == News()


def test_what_a_shard_lost_is_news_until_a_batch_records_it(make: Callable[[], Scenario]) -> None:
    """The first batch that was to record it was given up, after its plan had accepted the loss."""
    scenario = idle(make())
    work, name = scenario.work, scenario.work.pipeline.name
    shard = work.ledger.shards(name)[0]
    lost = replace(shard, id=7, status=GONE, first=shard.first, end=shard.first + 5)
    work.ledger.save_shards(name, [lost])
    assert news(work, over) == News()
    committed(work.ledger, name, [Range(7, lost.first, lost.first + 5, gap=True)], "run-1")
    assert news(work, over) is None
