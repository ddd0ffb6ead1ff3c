"""What computes on a table next, as tasks: changes taken and confirmed, and partitions that are complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_slshudi import (
    SlsHudiChangesOperator,
    SlsHudiConfirmOperator,
    SlsHudiPartitionsOperator,
    partitions_asset,
    table_asset,
)
from airflow_provider_slshudi.exceptions import ConfigError, ConsumerUnderWay, LedgerError
from airflow_provider_slshudi.ledger.records import Feed, Transaction
from airflow_provider_slshudi.operators import events
from airflow_provider_slshudi.operators.batch import SlsHudiCommitOperator
from airflow_provider_slshudi.operators.events import partitions_alias
from tests.airflow.operators.runs import AssetEvents, added, in_run
from tests.commits import HOUR, Committing, hour
from tests.machine import write_pipeline

FIRST, SECOND = ("reports", "run-1"), ("reports", "run-2")
COMPLETE = HOUR + 300
"""Five minutes behind the first hour."""


def taken(run: tuple[str, str] = FIRST, states: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    given = {"task_id": "take", "pipeline": "ad_events", "consumer": "report", **arguments}
    result = SlsHudiChangesOperator(**given).execute(in_run(run, states))
    # As Airflow keeps it.
    kept: dict[str, Any] = json.loads(json.dumps(result))
    return kept


def confirm(changes: Any) -> None:
    SlsHudiConfirmOperator(task_id="confirm", pipeline="ad_events", changes=changes).execute(in_run(FIRST))


def test_a_consumer_is_given_each_commit_once(hourly: Committing) -> None:
    first, second = hourly.commit(0, 1, rows=3), hourly.commit(1)
    changes = taken()
    assert changes["key"].rpartition("-")[0] == "ad_events/report/1-2"
    assert (changes["first"], changes["last"]) == (1, 2)
    assert [item["instant"] for item in changes["commits"]] == [first.instant, second.instant]
    assert changes["commits"][0]["partitions"] == {f"event_hour={hour(0)}": 3, f"event_hour={hour(1)}": 3}
    assert (changes["commits"][0]["rows"], changes["commits"][0]["ranges"]) == (6, [[0, 0, 1]])
    confirm(changes)
    confirm(changes)
    with pytest.raises(AirflowSkipException, match="report has confirmed all"):
        taken(SECOND)
    third = hourly.commit(2)
    assert [item["instant"] for item in taken(SECOND)["commits"]] == [third.instant]


def test_a_consumer_that_starts_at_the_end_is_given_what_comes_after_its_first_run(hourly: Committing) -> None:
    hourly.commit(0)
    with pytest.raises(AirflowSkipException):
        taken(start="end")
    later = hourly.commit(0)
    assert [item["transaction"] for item in taken(SECOND, start="end")["commits"]] == [later.id]


def test_no_more_are_given_at_once_than_asked_for_and_the_others_follow(hourly: Committing) -> None:
    for _ in range(3):
        hourly.commit(0)
    changes = taken(most=2)
    assert changes["last"] == 2
    confirm(changes)
    assert [item["place"] for item in taken(SECOND, most=2)["commits"]] == [3]


def test_a_retry_is_given_the_same_and_another_run_only_once_that_one_is_over(hourly: Committing) -> None:
    hourly.commit(0)
    lost = taken()
    hourly.commit(0)
    again = taken()
    assert again["key"] == lost["key"] and again["commits"] == lost["commits"]
    with pytest.raises(ConsumerUnderWay, match=r"reports/run-1 has taken ad_events/report/1-1"):
        taken(SECOND, {"reports/run-1": "running"})
    assert taken(SECOND, {"reports/run-1": "failed"})["commits"] == lost["commits"]
    with pytest.raises(AirflowFailException, match=r"is not this run's any more: run here\|reports/run-2 has taken"):
        confirm(again)


def test_a_consumer_of_partitions_is_given_those_that_are_complete_and_again_after_late_logs(
    hourly: Committing,
) -> None:
    def given(run: tuple[str, str]) -> list[tuple[str, int, int]]:
        changes = taken(run, of="partitions")
        confirm(changes)
        assert changes["commits"] == []
        return [(item["partition"], item["times"], item["rows"]) for item in changes["partitions"]]

    hourly.commit(0, 1)
    hourly.look(COMPLETE)
    assert completed() == [hour(0)]
    assert given(FIRST) == [(hour(0), 1, 1)]
    hourly.commit(0)
    hourly.look(COMPLETE + 1)
    assert completed() == [hour(0)]
    assert given(SECOND) == [(hour(0), 2, 2)]


def test_wrong_arguments_are_refused_before_anything_is_taken(hourly: Committing) -> None:
    wrong = (("of", "rows"), ("start", "now"), ("most", 0))
    for field, value in wrong:
        with pytest.raises(ConfigError, match=f"consumer report: {field}: {value!r}"):
            SlsHudiChangesOperator(task_id="take", pipeline="ad_events", consumer="report", **{field: value})  # type: ignore[arg-type]
    hourly.commit(0)
    taken()
    with pytest.raises(LedgerError, match="is given commits, not partitions: choose another name"):
        taken(of="partitions")
    with pytest.raises(LedgerError, match="knows no pipeline clicks"):
        taken(pipeline="clicks")
    for changes in (None, "{}", {"consumer": "report"}):
        with pytest.raises(AirflowFailException, match="not what SlsHudiChangesOperator returns"):
            confirm(changes)


def test_a_consumer_needs_no_file_of_the_pipeline(hourly: Committing, pipelines: Path) -> None:
    (pipelines / "ad_events.yaml").unlink()
    hourly.commit(0)
    confirm(taken())


def completed(context: Context | None = None, outlets: list[Any] | None = None) -> list[str]:
    """The partitions that a run of the task completes."""
    task = SlsHudiPartitionsOperator(task_id="partitions", pipeline="ad_events", outlets=outlets or [])
    return [item["partition"] for item in task.execute(context or in_run(("tail", "run-1")))]


def test_partitions_are_completed_once_and_a_run_with_none_skips(hourly: Committing) -> None:
    hourly.commit(0, 1)
    hourly.look(COMPLETE - 1)
    with pytest.raises(AirflowSkipException):
        completed()
    hourly.look(2 * HOUR + 300)
    assert completed() == [hour(0), hour(1)]
    with pytest.raises(AirflowSkipException):
        completed()


def test_a_pipeline_without_a_lateness_is_refused_at_once(pipelines: Path, ledger_connection: Path) -> None:
    write_pipeline(pipelines / "ad_events.yaml", pipelines.parent / "lake" / "ad_events")
    with pytest.raises(AirflowFailException, match="declares its `lateness`"):
        completed()


def test_the_asset_of_partitions_lies_beside_the_tables(hourly: Committing) -> None:
    asset, table = partitions_asset("ad_events"), table_asset("ad_events")
    assert (asset.name, asset.uri) == ("hudi_ad_events_partitions", f"{table.uri}?of=partitions")


@pytest.fixture
def told(hourly: Committing, asset_events: AssetEvents) -> Callable[[], list[dict[str, Any]]]:
    """A run of the task with the outlets of the tail; the events without a key that it adds."""

    def run() -> list[dict[str, Any]]:
        asset, alias = partitions_asset(hourly.pipeline), partitions_alias(hourly.pipeline)
        context = in_run(("tail", "run-1"))
        try:
            partitions = completed(context, [asset, alias])
        except AirflowSkipException:
            return []
        accessor: Any = context["outlet_events"][asset]
        if not hasattr(accessor, "add_partitions"):
            assert added(context, alias) == []
            return [accessor.extra]
        assert accessor.partition_keys == {*partitions}
        assert added(context, alias) == [accessor.extra], "one without a key, for DAGs that know none"
        return added(context, alias)

    return run


def test_each_complete_partition_has_an_event_with_its_key_and_all_have_one_without(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]], asset_events: AssetEvents
) -> None:
    hourly.commit(0, rows=7)
    hourly.look(2 * HOUR + 300)
    of_hours = {hour(0): {"times": 1, "rows": 7}, hour(1): {"times": 1, "rows": 0}}
    (extra,) = told()
    assert extra == {"pipeline": "ad_events", "first": 1, "last": 2, "partitions": of_hours}
    asset_events.add(extra)
    assert told() == []


def test_an_event_that_died_with_its_task_is_sent_by_the_next_run_and_only_once(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]], asset_events: AssetEvents
) -> None:
    hourly.commit(0)
    hourly.look(COMPLETE)
    (lost,) = told()
    assert told() == [lost]
    hourly.look(COMPLETE + HOUR)
    (extra,) = told()
    assert [*extra["partitions"]] == [hour(0), hour(1)]
    asset_events.add(extra)
    assert told() == []


def commit_task_of(batch: Transaction) -> SlsHudiCommitOperator:
    planned = {"transaction": batch.id, "token": batch.token}
    return SlsHudiCommitOperator(task_id="commit", pipeline="ad_events", transaction=planned)


@pytest.fixture
def without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow 3.1, which tells all events that an asset ever had, or none."""

    def refuse(*_: object) -> None:
        raise ImportError("cannot import name 'InletEventsAccessor'")

    monkeypatch.setattr(events, "_extras", refuse)


def test_a_commit_completes_partitions_whose_event_comes_with_the_last_task(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]], asset_events: AssetEvents
) -> None:
    """Between the two are catalogs and mirrors, which may fail, and batches that drain a backlog."""
    batch = hourly.commit(0)
    hourly.look(COMPLETE)
    commit_task_of(batch).execute(in_run(("tail", "run-1")))
    assert hourly.ledger.newest("ad_events", Feed.PARTITIONS) == 1
    (extra,) = told()
    assert extra["last"] == 1


@pytest.mark.usefixtures("without_events")
def test_an_airflow_that_cannot_tell_its_events_is_sent_each_once_and_a_task_without_outlets_takes_none(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]]
) -> None:
    batch = hourly.commit(0)
    hourly.look(COMPLETE)
    commit_task_of(batch).execute(in_run(("tail", "run-1")))
    assert completed() == [hour(0)]
    assert [extra["last"] for extra in told()] == [1]
    assert told() == []
    with pytest.raises(AirflowSkipException):
        completed()


def test_a_run_that_airflow_does_not_answer_tells_nothing_and_the_next_one_all(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]], asset_events: AssetEvents
) -> None:
    hourly.commit(0)
    hourly.look(COMPLETE)
    (_,) = told()  # that task died
    hourly.look(COMPLETE + HOUR)
    asset_events.answers = False
    assert told() == []
    asset_events.answers = True
    (extra,) = told()
    assert [*extra["partitions"]] == [hour(0), hour(1)]


@pytest.mark.parametrize("others", [1, events._EVENTS, events._MOST_EVENTS])
def test_an_asset_that_several_pipelines_have_tells_each_what_is_its_own(
    hourly: Committing, asset_events: AssetEvents, others: int
) -> None:
    ours, clicks = Asset("hours of all"), {"pipeline": "clicks", "first": 7, "last": 7, "partitions": {}}
    for _ in range(others):
        asset_events.add(clicks)
    hourly.commit(0)
    hourly.look(COMPLETE)
    for run in ("died", "run-1"):
        context = in_run(("tail", run))
        assert completed(context, [ours]) == [hour(0)]
    asset_events.add({**context["outlet_events"][ours].extra})
    with pytest.raises(AirflowSkipException):
        completed(in_run(("tail", "run-2")), [ours])
    for _ in range(others):
        asset_events.add(clicks)
    hourly.look(COMPLETE + HOUR)
    assert completed(in_run(("tail", "run-3")), [ours]) == [hour(1)]


@pytest.mark.parametrize("longest", [events._LONGEST, timedelta()], ids=["soon", "after a week"])
def test_many_partitions_are_told_by_several_runs(
    hourly: Committing,
    told: Callable[[], list[dict[str, Any]]],
    asset_events: AssetEvents,
    monkeypatch: pytest.MonkeyPatch,
    longest: timedelta,
) -> None:
    monkeypatch.setattr(events, "_PARTITIONS", 2)
    hourly.commit(0)
    hourly.look(3 * HOUR + 300)
    spans = []
    while extras := told():
        (extra,) = extras
        asset_events.add(extra)
        spans.append((extra["first"], extra["last"]))
        monkeypatch.setattr(events, "_LONGEST", longest)
    assert spans == [(1, 2), (3, 3)]


@pytest.mark.parametrize("last", [900, 2])
def test_a_ledger_that_counts_anew_is_told_of_all_the_same(
    hourly: Committing, told: Callable[[], list[dict[str, Any]]], asset_events: AssetEvents, last: int
) -> None:
    before = {"2025-12-31-22": {"times": 1, "rows": 7}, "2025-12-31-23": {"times": 1, "rows": 7}}
    asset_events.add({"pipeline": "ad_events", "first": last - 1, "last": last, "partitions": before})
    hourly.commit(0)
    hourly.look(COMPLETE + 2 * HOUR)
    assert [(extra["first"], extra["last"]) for extra in told()] == [(1, 3)]


def test_an_alias_alone_has_an_event_without_a_key(hourly: Committing, asset_events: AssetEvents) -> None:
    hourly.commit(0)
    hourly.look(COMPLETE)
    alias, context = AssetAlias("fleet"), in_run(("tail", "run-1"))
    assert completed(context, [alias]) == [hour(0)]
    (event,) = context["outlet_events"][alias].asset_alias_events
    assert event.dest_asset_key.name == "hudi_ad_events_partitions"
    assert hourly.ledger.newest("ad_events", Feed.PARTITIONS) == 1


def test_an_asset_of_ones_own_has_the_events_too(hourly: Committing, asset_events: AssetEvents) -> None:
    hourly.commit(0)
    hourly.look(COMPLETE)
    mine, context = Asset("mine"), in_run(("tail", "run-1"))
    completed(context, [mine])
    assert context["outlet_events"][mine].extra["last"] == 1
    assert {*asset_events.names} - {None} == {"mine"}, "its own events say what it has been told"
