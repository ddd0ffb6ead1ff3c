"""Quarantined logs go back once the pipeline's file takes them: each is in one of the two tables, whatever dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_slshudi.exceptions import CommitStateUnknown, JobFailed, ReplayUnderWay
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.ledger.records import Kind, StartPositions, State
from airflow_provider_slshudi.repair import replay
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.quarantined import LOGS, aside, assert_each_once, changed, rows_of

Make = Callable[..., Scenario]


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """One batch, a tenth of it in the quarantine for `clicks: none`."""
    made = scenario(misfits="quarantine")
    made.put(LOGS)
    made.batch("run-1")
    return made


def corrected(pipeline: Scenario, run: str = "replay-1") -> Scenario:
    """The pipeline whose file takes `clicks` as nullified, which every log then fits."""
    made = changed(pipeline, misfits="nullify")
    return replace(made, work=made.by(run))


@pytest.mark.capability("replay")
def test_what_fits_by_now_goes_back_and_a_second_replay_finds_nothing_more(pipeline: Scenario) -> None:
    (shown,) = replay.show(pipeline.work)
    assert (shown["column"], shown["type"], shown["reason"], shown["logs"]) == ("clicks", "bigint", "conversion", 10)
    assert (shown["first_time"], shown["last_time"]) == (1_700_000_000, 1_700_000_090)
    before = verify(pipeline.work).to_dict()
    assert before["ok"] and before["totals"]["rows"] == LOGS and before["totals"]["quarantined"] == 10

    unchanged = replay.replay(pipeline.by("replay-0"), Selection())
    assert unchanged is not None and (unchanged.moved, unchanged.left) == (0, {"clicks conversion": 10})
    assert_each_once(pipeline, LOGS, 10)

    some = replay.replay(corrected(pipeline).work, Selection(column="clicks", since=1_700_000_050))
    assert some is not None and (some.moved, some.left) == (5, {})
    assert_each_once(pipeline, LOGS, 5)
    proof = verify(pipeline.work).to_dict()
    assert proof["ok"] and (proof["totals"]["rows"], proof["totals"]["quarantined"]) == (LOGS, 5)

    rest = replay.replay(corrected(pipeline, "replay-2").work, Selection())
    again = replay.replay(corrected(pipeline, "replay-3").work, Selection())
    assert rest is not None and again is not None and (rest.moved, again.moved) == (5, 0)
    assert_each_once(pipeline, LOGS, 0)
    assert replay.show(pipeline.work) == []
    assert sorted(row["event_id"] for row in rows_of(pipeline.work.storage.uri)) == sorted(
        f"event-{number}" for number in range(LOGS)
    )

    # What the ledger knew of all that is in the commits.
    pipeline.work.ledger.rebuild("ad_events", [], StartPositions())
    assert rebuild(pipeline.work).committed == 5
    assert [item.kind for item in pipeline.work.ledger.replays("ad_events")] == [Kind.REPLAY] * 4
    assert verify(pipeline.work).ok


def test_logs_come_back_as_if_they_had_fitted_at_once(scenario: Make) -> None:
    """Rest, tags, topic and partitions are made of the raw log."""
    columns: list[dict[str, Any]] = [
        {"name": "event_id"},
        {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
        {"name": "clicks", "type": "bigint", "required": True},
        {"name": "topic", "key": "__topic__"},
        {"name": "logged", "type": "timestamp", "format": "seconds", "key": "__time__"},
    ]
    pipeline = scenario(misfits="quarantine", columns=columns)
    pipeline.put(20)
    pipeline.batch("run-1")
    wide = [dict(column, type="string") if column["name"] == "clicks" else column for column in columns]
    table = pipeline.work.pipeline.table.model_dump(mode="json")
    fits = changed(pipeline, columns=wide, name="other", table={**table, "path": f"{table['path']}_2"})
    fits.batch("run-1")
    done = replay.replay(corrected(pipeline).work, Selection())
    assert done is not None and done.moved == 2
    wanted = {row["_hoodie_record_key"]: row for row in rows_of(fits.work.storage.uri)}
    for row in rows_of(pipeline.work.storage.uri):
        for name in ("event_id", "event_time", "event_date", "topic", "logged", "rest"):
            assert row[name] == wanted[row["_hoodie_record_key"]][name], name


def test_a_second_replay_waits_for_the_first_and_so_does_verify(pipeline: Scenario) -> None:
    begun = replay.plan(corrected(pipeline).work)
    assert begun is not None and begun.kind is Kind.REPLAY
    with pytest.raises(ReplayUnderWay, match=f"replay {begun.id} .* is PLANNED"):
        replay.plan(corrected(pipeline, "replay-2").work)
    with pytest.raises(ReplayUnderWay, match="is PLANNED"):
        verify(pipeline.work)
    settle(pipeline.by("run-2"), lambda run: True)
    assert verify(pipeline.work).ok


@pytest.mark.parametrize("point", [Point.APPEND_WRITTEN, Point.COMMIT_COMPLETED])
def test_a_replay_that_dies_moves_each_log_once(pipeline: Scenario, point: Point) -> None:
    """Before the decision nothing was moved; between the two tables' commits, what was moved is."""
    decided = point is Point.COMMIT_COMPLETED
    dying = replace(corrected(pipeline).work, launcher=DyingLauncher(point))
    with pytest.raises(CommitStateUnknown if decided else JobFailed):
        replay.replay(dying, Selection())
    settle(pipeline.by("run-2"), lambda run: True)
    assert aside(pipeline).pending() == []
    assert_each_once(pipeline, LOGS, 0 if decided else 10)
    again = replay.replay(corrected(pipeline, "replay-2").work, Selection())
    assert again is not None and again.moved == (0 if decided else 10)
    assert_each_once(pipeline, LOGS, 0)
    assert verify(pipeline.work).ok
    assert pipeline.work.ledger.last("ad_events", 1)[0].state is State.COMMITTED
