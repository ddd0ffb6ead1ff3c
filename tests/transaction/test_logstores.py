"""A pipeline of several logstores by connections of their own: each log once in one table, under its shard's number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aliyun.log import LogItem, PutLogsRequest
from sqlalchemy import select

from airflow_provider_slshudi.exceptions import CommitStateUnknown, PipelineConflict, SourceRefused, SourceUnavailable
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.sls.faults import Patience
from airflow_provider_slshudi.sls.logstores import service_of
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.local.sdk import by_ip
from tests.scenarios import PROJECT, DyingLauncher, Scenario, log
from tests.transaction.quarantined import assert_each_once, changed, rows_of

Make = Callable[..., Scenario]
PLACES = (0, 1, 2)


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSls]:
    """Another region's service, with keys of its own."""
    with LocalSls(tmp_path_factory.mktemp("abroad"), access_key_id="other") as running:
        by_ip(running.connection()).create_project("ads-abroad", "tests")
        yield running


class Logstores:
    """A pipeline of three logstores, the last of which is of another service."""

    def __init__(self, made: Scenario, server: LocalSls, abroad: LocalSls, **fields: Any) -> None:
        self.first = made.work.pipeline.source.logstore
        self.names = [(PROJECT, self.first), (PROJECT, f"{self.first}-2"), ("ads-abroad", f"{self.first}-3")]
        self.servers = [server, server, abroad]
        for place in (1, 2):
            by_ip(self.servers[place].connection()).create_logstore(*self.names[place], ttl=7, shard_count=2)
        self.scenario = self.of(made, 3, **fields)

    def of(self, made: Scenario, count: int, order: tuple[int, ...] = PLACES, **fields: Any) -> Scenario:
        """The same pipeline with so many of the logstores."""
        connections = ("sls_default", "sls_default", "sls_abroad")
        described = [
            {"connection": connections[place], "project": self.names[place][0], "logstore": self.names[place][1]}
            for place in order[:count]
        ]
        whole = changed(made, source={**fields.pop("source", {}), **described[0], "also": described[1:]}, **fields)
        source = whole.work.pipeline.source
        told = {"sls_default": self.servers[0].connection(), "sls_abroad": self.servers[2].connection()}
        known = [told[name] for name in source.connections]
        return replace(whole, work=replace(whole.work, connect=lambda: service_of(source.places, known, Patience(5))))

    def put(self, place: int, numbers: range) -> None:
        """Puts ad events into one logstore, ten to a log group."""
        client = by_ip(self.servers[place].connection())
        for begin in range(numbers.start, numbers.stop, 10):
            items = [
                LogItem(1_700_000_000 + number, contents=log(number))
                for number in range(begin, min(begin + 10, numbers.stop))
            ]
            client.put_logs(PutLogsRequest(*self.names[place], "ads", "10.0.0.1", items))


@pytest.fixture
def logstores(scenario: Make, server: LocalSls, abroad: LocalSls) -> Logstores:
    """Three logstores with sixty logs each, of which six do not fit."""
    made = Logstores(scenario(), server, abroad, misfits="quarantine")
    for place in PLACES:
        made.put(place, range(100 * place, 100 * place + 60))
    return made


@pytest.mark.capability("several logstores")
def test_logs_of_three_logstores_and_two_services_are_in_the_table_once_by_one_transaction(
    logstores: Logstores,
) -> None:
    pipeline = logstores.scenario
    batch = pipeline.batch("run-1")
    assert batch.rows == 180
    assert_each_once(pipeline, 180, 18)
    read = {item.shard // 1_000_000: item.shard % 1_000_000 for item in pipeline.work.ledger.ranges(batch.id)}
    assert sorted(read) == [0, 1, 2] and set(read.values()) <= {0, 1}
    for row in rows_of(pipeline.work.storage.uri):
        place = int(row["_hoodie_record_key"].split("-")[0]) // 1_000_000
        assert int(row["event_id"].removeprefix("event-")) // 100 == place
    proof = verify(pipeline.work, source=True)
    assert proof.ok, proof.complaint()
    assert proof.totals.not_comparable == 0
    assert pipeline.work.ledger.pipelines()[0].source.split() == [f"sls://{'/'.join(name)}" for name in logstores.names]


def test_a_commit_that_dies_half_way_is_finished_with_the_logs_of_all(logstores: Logstores) -> None:
    pipeline = logstores.scenario
    prepared = pipeline.prepare(pipeline.by("run-1"))
    with pytest.raises(CommitStateUnknown):
        steps.commit(pipeline.by("run-1", launcher=DyingLauncher(Point.COMMIT_COMPLETED)), prepared.id, prepared.token)
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.MARK_COMMITTED]
    assert_each_once(pipeline, 180, 18)


def test_a_rebuilt_ledger_goes_on_with_each_logstore(logstores: Logstores, another_ledger: Ledger) -> None:
    pipeline = logstores.scenario
    pipeline.batch("run-1")
    for place in PLACES:
        logstores.put(place, range(100 * place + 60, 100 * place + 80))
    after = pipeline.by("rebuild", ledger=another_ledger)
    rebuild(after)
    resumed = replace(pipeline, work=after)
    assert resumed.batch("run-2").rows == 60
    assert_each_once(resumed, 240, 24)


def test_a_pipeline_gets_further_logstores_and_loses_none(scenario: Make, server: LocalSls, abroad: LocalSls) -> None:
    made = Logstores(scenario(), server, abroad)
    for place in PLACES:
        made.put(place, range(100 * place, 100 * place + 40))
    alone, two = made.of(made.scenario, 1), made.of(made.scenario, 2)
    assert alone.batch("run-1").rows == 40
    assert two.batch("run-2").rows == 40, "what the further one held is read from its begin"
    made.put(0, range(40, 60))
    # The third begins at its end: what it had before is not ours.
    three = made.of(made.scenario, 3, source={"start": "end"})
    assert three.batch("run-3").rows == 20
    made.put(2, range(240, 260))
    assert three.batch("run-4").rows == 20
    assert verify(three.work, source=True).ok
    for wrong in (two, made.of(made.scenario, 3, order=(1, 0, 2)), made.of(made.scenario, 2, order=(0, 2))):
        with pytest.raises(PipelineConflict, match=r"put `source` back \(further logstores may follow"):
            plan.tail(wrong.by("run-5"))


def test_a_batch_that_was_planned_before_the_file_got_another_logstore_is_committed(
    scenario: Make, server: LocalSls, abroad: LocalSls
) -> None:
    made = Logstores(scenario(), server, abroad)
    made.put(0, range(30))
    made.put(1, range(100, 130))
    alone, two = made.of(made.scenario, 1), made.of(made.scenario, 2)
    opened = alone.open(alone.by("run-1"))
    work = two.by("run-1")
    steps.append(work, opened.id, opened.token)
    steps.record(work, opened.id, opened.token)
    assert steps.commit(work, opened.id, opened.token).state is State.COMMITTED
    assert two.batch("run-2").rows == 30


def test_shards_that_appear_in_one_logstore_are_read_from_their_begin_and_in_order(
    scenario: Make, server: LocalSls, abroad: LocalSls
) -> None:
    made = Logstores(scenario(), server, abroad, source={"order": "by_key"})
    pipeline = made.scenario
    made.put(0, range(20))
    made.put(2, range(200, 220))
    assert pipeline.batch("run-1").rows == 40
    made.put(2, range(220, 240))
    by_ip(abroad.connection()).split_shard(*made.names[2], 0, "4" + "0" * 31)
    made.put(2, range(240, 260))
    made.put(0, range(20, 40))
    rows = 0
    for run in range(2, 6):
        planned = plan.preview(pipeline.by(f"look-{run}"))
        if not planned:
            break
        rows += pipeline.batch(f"run-{run}").rows
    assert rows == 60
    known = {shard.id for shard in pipeline.work.ledger.shards("ad_events")}
    assert known == {0, 1, 1_000_000, 1_000_001, 2_000_000, 2_000_001, 2_000_002, 2_000_003}
    assert_no_losses(pipeline)
    assert verify(pipeline.work, source=True).ok


def assert_no_losses(pipeline: Scenario) -> None:
    """Nothing counts as unseen, though the numbers of shards have great holes between logstores."""
    with pipeline.work.ledger._read() as connection:
        assert connection.execute(select(models.pipelines.c.losses)).scalars().all() == [None]


def test_a_backfill_names_a_shard_of_any_logstore(logstores: Logstores) -> None:
    pipeline = logstores.of(logstores.scenario, 3, source={"start": "end"}, misfits="quarantine")
    plan.tail(pipeline.by("run-0"))
    begin = pipeline.work.connect().begin(2_000_000)
    request = plan.BackfillRequest(cursors={2_000_000: (begin, begin + 2)})
    assert plan.preview_backfill(pipeline.work, request) == [Range(2_000_000, begin, begin + 2)]
    with pytest.raises(Exception, match="5000000"):
        plan.preview_backfill(pipeline.work, plan.BackfillRequest(cursors={5_000_000: (0, 2)}))


def test_the_error_of_a_logstore_that_is_not_there_names_it(logstores: Logstores) -> None:
    logstores.names[2] = "ads-abroad", "no-such"
    pipeline = logstores.of(logstores.scenario, 3)
    with pytest.raises(SourceRefused, match="ads-abroad/no-such"):
        plan.tail(pipeline.by("run-1"))
    assert not Path(pipeline.work.storage.full(".hoodie")).exists()


def test_one_service_that_is_down_holds_up_all_and_is_named(scenario: Make, server: LocalSls, tmp_path: Path) -> None:
    with LocalSls(tmp_path / "down", access_key_id="other") as abroad:
        by_ip(abroad.connection()).create_project("ads-abroad", "tests")
        made = Logstores(scenario(), server, abroad)
        made.put(0, range(20))
        connection = abroad.connection()
    made.servers[2] = type("Down", (), {"connection": lambda self: connection})()
    pipeline = made.of(made.scenario, 3)
    with pytest.raises(SourceUnavailable, match="ads-abroad/"):
        plan.tail(pipeline.by("run-1"))
