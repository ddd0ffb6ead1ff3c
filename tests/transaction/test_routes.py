"""Routes: each log is in the one table that its rule says, and a batch is committed in all of its tables or in none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from airflow_provider_slshudi.exceptions import (
    ColumnMismatch,
    CommitStateUnknown,
    ForeignWrite,
    JobFailed,
    TableMismatch,
    TimelineUnreadable,
)
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.erase import accept_erased
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.replay import replay
from airflow_provider_slshudi.services.maintenance import archive, clean
from airflow_provider_slshudi.services.metadata import check_metadata
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.shaping.conditions import described
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.quarantined import changed, rows_of
from tests.transaction.test_erased import run_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOGS = 100
ROUTES: list[dict[str, Any]] = [
    {"name": "dear", "where": "price >= 20"},
    {"name": "few", "where": "clicks < 30 and key('city') = 'Ulm'"},
    {"name": "never", "where": "price < 0"},
]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["event_id"].removeprefix("event-")) for row in rows)


def table_of(pipeline: Scenario, name: str) -> str:
    return f"{pipeline.work.pipeline.table.path}_{name}"


def read(pipeline: Scenario) -> dict[str, list[int]]:
    """The numbers of the events in each table."""
    places = {"main": pipeline.work.pipeline.table.path}
    places |= {route.name: pipeline.work.pipeline.path_of(route) for route in pipeline.work.pipeline.routes}
    return {name: numbers(rows_of(path)) for name, path in places.items()}


def wanted(logs: range, quarantine: bool = True) -> dict[str, list[int]]:
    """Where each event belongs. A log whose number is a multiple of ten has no number of clicks."""
    tables: dict[str, list[int]] = {"main": [], "dear": [], "few": [], "never": []}
    for number in logs:
        fits = bool(number % 10)
        if quarantine and not fits:
            continue
        name = "dear" if number / 4 >= 20 else "few" if fits and number < 30 else "main"
        tables[name].append(number)
    return tables


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    made = changed(scenario(), routes=ROUTES, misfits="quarantine")
    made.put(LOGS)
    return made


@pytest.mark.capability("routes")
def test_each_log_is_in_the_table_that_its_rule_says(pipeline: Scenario) -> None:
    batch = pipeline.batch("run-1")
    assert read(pipeline) == wanted(range(LOGS))
    assert len(rows_of(pipeline.work.pipeline.quarantine_path)) == 10
    assert batch.rows == LOGS and batch.manifest is not None
    assert batch.manifest["routed"] == {"route-dear": 18, "route-few": 27, "route-never": 0}
    proof = verify(pipeline.work, source=True)
    assert proof.ok, proof.complaint()
    assert (proof.rows, proof.totals.quarantined, proof.totals.lacking) == (LOGS, 10, 0)
    assert check_metadata(pipeline.work).ok
    pipeline.put(LOGS, first=LOGS)
    pipeline.batch("run-2")
    assert read(pipeline) == wanted(range(2 * LOGS))


def test_a_condition_that_cannot_be_judged_sends_a_log_nowhere_else(scenario: Make) -> None:
    pipeline = changed(scenario(), routes=ROUTES, misfits="nullify")
    pipeline.put(LOGS)
    pipeline.batch("run-1")
    assert read(pipeline) == wanted(range(LOGS), quarantine=False)


def test_what_where_leaves_out_goes_into_no_table(scenario: Make) -> None:
    pipeline = changed(scenario(), routes=ROUTES, where="price < 22")
    pipeline.put(LOGS)
    batch = pipeline.batch("run-1")
    assert read(pipeline) == {name: [n for n in found if n < 88] for name, found in wanted(range(LOGS), False).items()}
    assert sum(total.filtered for total in pipeline.work.ledger.totals(batch.id)) == 12
    proof = verify(pipeline.work, source=True)
    assert proof.ok, proof.complaint()


DYING = [
    (Point.COMMIT_STARTED, Decision.RECOMMIT),
    (Point.COMMIT_COMPLETED, Decision.MARK_COMMITTED),
    (Point.COMMIT_QUARANTINED, Decision.MARK_COMMITTED),
]


@pytest.mark.parametrize(("point", "decision"), DYING)
def test_a_commit_that_dies_between_two_tables_is_finished_in_all(
    pipeline: Scenario, point: Point, decision: Decision
) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    with pytest.raises(CommitStateUnknown):
        steps.commit(pipeline.by("run-1", launcher=DyingLauncher(point)), prepared.id, prepared.token)
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [decision]
    assert read(pipeline) == wanted(range(LOGS))
    pipeline.put(LOGS, first=LOGS)
    pipeline.batch("run-3")
    assert read(pipeline) == wanted(range(2 * LOGS))


@pytest.mark.parametrize(
    "point", [Point.APPEND_QUARANTINE_REQUESTED, Point.APPEND_QUARANTINE_OPEN, Point.APPEND_WRITTEN]
)
def test_an_append_that_dies_leaves_nothing_in_any_table(pipeline: Scenario, point: Point) -> None:
    opened = pipeline.open(pipeline.by("run-1"))
    with pytest.raises(JobFailed):
        steps.append(pipeline.by("run-1", launcher=DyingLauncher(point)), opened.id, opened.token)
    assert [item.decision for item in settle(pipeline.by("run-2"), lambda run: True)] == [Decision.ROLL_BACK_AND_ABORT]
    for path in pipeline.work.pipeline.table_paths:
        assert not [name for name, _ in Storage(path).walk() if name.endswith(".parquet") and ".hoodie" not in name]
        assert Timeline.load(Storage(path)).pending() == []
    pipeline.batch("run-3")
    assert read(pipeline) == wanted(range(LOGS))


def test_routes_that_are_taken_out_of_the_file_while_a_batch_is_under_way_get_their_part(pipeline: Scenario) -> None:
    prepared = pipeline.prepare(pipeline.by("run-1"))
    with pytest.raises(CommitStateUnknown):
        work = pipeline.by("run-1", launcher=DyingLauncher(Point.COMMIT_COMPLETED))
        steps.commit(work, prepared.id, prepared.token)
    without = changed(pipeline, routes=[])
    settle(without.by("run-2"), lambda run: True)
    assert read(pipeline) == wanted(range(LOGS))
    opened = pipeline.prepare_next(LOGS)
    settle(without.by("run-3"), lambda run: True)
    assert without.work.ledger.get(opened.id).state is State.COMMITTED
    assert read(pipeline) == wanted(range(LOGS + 10))


def test_a_rebuilt_ledger_goes_on_with_all_tables(pipeline: Scenario, another_ledger: Ledger) -> None:
    pipeline.batch("run-1")
    prepared = pipeline.prepare_next(LOGS)
    assert prepared.state is State.PREPARED
    after = pipeline.by("rebuild", ledger=another_ledger)
    assert rebuild(after).rolled_back == [prepared.instant]
    resumed = replace(pipeline, work=after)
    resumed.batch("run-2")
    assert read(resumed) == wanted(range(LOGS + 10))
    proof = verify(resumed.work, source=True)
    assert proof.ok, proof.complaint()


def test_a_planted_row_in_the_wrong_table_is_found(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    # The same rows, with the conditions of the two routes exchanged.
    (first, second, third) = ROUTES
    other = [{**first, "where": second["where"]}, {**second, "where": first["where"]}, third]
    lying = changed(pipeline, routes=other)
    with pipeline.work.ledger._write() as connection:
        connection.execute(update(models.transactions).values(filter=described(lying.work.pipeline)))
    proof = verify(lying.work, source=True)
    assert not proof.ok
    assert (proof.totals.strange, proof.totals.lacking, proof.totals.missing) == (45, 45, 0)
    assert verify(lying.work).ok, "counts alone do not tell"


def test_a_table_of_a_route_that_is_gone_stops_the_pipeline(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    place = Path(Storage(table_of(pipeline, "few")).full(""))
    place.rename(place.with_name("elsewhere"))
    pipeline.put(10, first=LOGS)
    with pytest.raises((TimelineUnreadable, TableMismatch), match="table of route few is not here any more"):
        pipeline.batch("run-2")
    place.with_name("elsewhere").rename(place)
    settle(pipeline.by("run-3"), lambda run: True)
    pipeline.batch("run-4")
    assert read(pipeline) == wanted(range(LOGS + 10))


def test_replayed_logs_go_where_their_route_leads(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    columns = [*pipeline.work.pipeline.model_dump(mode="json", exclude_defaults=True)["columns"]]
    columns[3] = {"name": "clicks", "type": "bigint", "null_texts": ["none"]}
    mended = changed(pipeline, columns=columns)
    replayed = replay(mended.by("replay"), Selection())
    assert replayed is not None and replayed.moved == 10
    assert read(mended) == wanted(range(LOGS), quarantine=False)
    proof = verify(mended.work)
    assert proof.ok, proof.complaint()


def test_tables_of_routes_get_columns_and_services_too(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    file = pipeline.work.pipeline.model_dump(mode="json", exclude_defaults=True)
    columns = [*file["columns"], {"name": "city"}]
    kept = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    options = {"hoodie.metadata.compact.max.delta.commits": "1"}
    wider = changed(pipeline, columns=columns, maintenance=kept, table={**file["table"], "options": options})
    for number in range(4):
        wider.put(10, first=LOGS + 10 * number)
        wider.batch(f"run-w{number}")
    assert {row["city"] for row in rows_of(table_of(wider, "dear"))} == {None, "Ulm"}
    clean(wider.by("clean"))
    archive(wider.by("archive"))
    for path in wider.work.pipeline.table_paths:
        assert len(Timeline.load(Storage(path)).completed("commit")) <= 3
    assert read(wider) == wanted(range(LOGS + 40))
    proof = verify(wider.work, source=True)
    assert proof.ok, proof.complaint()
    refused = changed(
        wider, columns=[{**column, "type": "int"} if column["name"] == "price" else column for column in columns]
    )
    with pytest.raises(ColumnMismatch):
        refused.batch("run-refused")


def test_routes_that_change_hold_from_the_next_batch_on(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    prepared = pipeline.prepare_next(LOGS)
    # The first two exchange their conditions, the third goes, and another one comes.
    swapped = [{**ROUTES[0], "where": ROUTES[1]["where"]}, {**ROUTES[1], "where": ROUTES[0]["where"]}]
    after = changed(pipeline, routes=[*swapped, {"name": "late", "where": "clicks % 2 = 1"}], where="clicks % 5 <> 3")
    work = after.by(prepared.run_id)
    assert steps.commit(work, prepared.id, prepared.token).state is State.COMMITTED
    first = wanted(range(LOGS + 10))
    assert {name: read(pipeline)[name] for name in ("main", "dear", "few")} == {
        name: first[name] for name in ("main", "dear", "few")
    }
    after.put(50, first=LOGS + 10)
    after.batch("run-3")
    tables = read(after)
    new = [n for n in range(LOGS + 10, LOGS + 60) if n % 10 and n % 5 != 3]
    assert tables["few"] == sorted([*first["few"], *new]), "each of them is dear, which leads there now"
    assert (tables["dear"], tables["main"], tables["late"]) == (first["dear"], first["main"], [])
    proof = verify(after.work, source=True)
    assert proof.ok, proof.complaint()


def test_what_others_erase_from_a_route_s_table_is_accepted(pipeline: Scenario, spark: SparkSession) -> None:
    pipeline.batch("run-1")
    run_sql(spark, pipeline, "delete from {t} where event_id = 'event-99'", uri=table_of(pipeline, "dear"))
    pipeline.put(10, first=LOGS)
    with pytest.raises(ForeignWrite, match="accept-erased"):
        pipeline.batch("run-2")
    erased = accept_erased(pipeline.by("repair"), "the user asked for it")
    assert [(item.of, item.rows) for item in erased.accepted] == [("route-dear", 1)]
    settle(pipeline.by("run-3"), lambda run: True)
    pipeline.batch("run-4")
    proof = verify(pipeline.work, source=True)
    assert proof.ok and proof.totals.erased == 1, proof.complaint()
    assert read(pipeline)["dear"] == [n for n in wanted(range(LOGS + 10))["dear"] if n != 99]


def test_a_proof_counts_the_rows_of_routes_that_the_file_has_no_more(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    without = changed(pipeline, routes=ROUTES[2:])
    without.put(10, first=LOGS)
    without.batch("run-2")
    assert read(pipeline)["dear"] == wanted(range(LOGS))["dear"]
    for source in (False, True):
        proof = verify(without.work, source=source)
        assert proof.ok, proof.complaint()
        assert proof.rows == LOGS + 10


def test_a_route_with_another_path_begins_a_table_there_and_keeps_the_rows_of_the_first(pipeline: Scenario) -> None:
    pipeline.batch("run-1")
    elsewhere = f"{pipeline.work.pipeline.table.path}_elsewhere"
    moved = changed(pipeline, routes=[{**ROUTES[0], "path": elsewhere}, *ROUTES[1:]])
    moved.put(20, first=LOGS)
    moved.batch("run-2")
    assert numbers(rows_of(table_of(pipeline, "dear"))) == wanted(range(LOGS))["dear"]
    assert numbers(rows_of(elsewhere)) == wanted(range(LOGS, LOGS + 20))["dear"]
    proof = verify(moved.work, source=True)
    assert proof.ok and proof.rows == LOGS + 20, proof.complaint()
