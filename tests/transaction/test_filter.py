"""Pipelines with a condition and computed columns: each log is a row, in the quarantine, or counted as left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.replay import replay
from airflow_provider_slshudi.services.verification import verify
from tests.pipelines import customers
from tests.scenarios import Scenario
from tests.transaction.quarantined import changed, rows_of
from tests.upserts import Change, put

Make = Callable[..., Scenario]
LOGS = 100
WHERE = "clicks >= 50 and clicks % 2 = 0 or event_id = 'event-3'"
NUMBER = "cast(regexp_extract(key('event_id'), '-([0-9]+)', 1) as bigint)"
COMPUTED: list[dict[str, Any]] = [
    {"name": "number", "type": "bigint", "expr": NUMBER},
    {"name": "class", "expr": "case when price > 20 then 'high' else concat('low in ', upper(key('city'))) end"},
    {"name": "ratio", "type": "double", "expr": "100 / (number - 60)"},
]
KEPT = {3, *range(52, LOGS, 2)} - {60, 70, 80, 90}
"""Logs whose number is a multiple of ten have no number of clicks: whether they are to be rows is not known."""
UNKNOWN = set(range(0, LOGS, 10))


def filtering(made: Scenario, **fields: Any) -> Scenario:
    columns = [*made.work.pipeline.model_dump(mode="json", exclude_defaults=True)["columns"], *COMPUTED]
    return changed(made, **{"where": WHERE, "columns": columns, "misfits": "quarantine", **fields})


@pytest.mark.capability("filters")
def test_what_is_kept_left_out_and_put_aside_adds_up_to_what_was_read(scenario: Make) -> None:
    pipeline = filtering(scenario(shards=3))
    pipeline.put(LOGS)
    batch = pipeline.batch("run-1")
    rows = rows_of(pipeline.work.storage.uri)
    assert {row["number"] for row in rows} == KEPT
    assert {row["event_id"]: row["class"] for row in rows}["event-3"] == "low in ULM"
    assert {row["class"] for row in rows} == {"high" if row["price"] > 20 else "low in ULM" for row in rows}
    assert all(row["ratio"] == 100 / (row["number"] - 60) for row in rows)
    aside = rows_of(pipeline.work.pipeline.quarantine_path)
    assert len(aside) == len(UNKNOWN) and {row["column_name"] for row in aside} == {"clicks"}
    totals = pipeline.work.ledger.totals(batch.id)
    assert batch.rows == len(KEPT) + len(UNKNOWN) == sum(total.rows for total in totals)
    assert sum(total.filtered for total in totals) == LOGS - batch.rows
    proof = verify(pipeline.work, source=True)
    assert proof.ok, proof.complaint()
    assert (proof.totals.filtered, proof.totals.unbalanced) == (LOGS - batch.rows, 0)
    replayed = replay(pipeline.by("replay"), Selection())
    assert replayed is not None and replayed.moved == 0
    healed = changed(
        pipeline, columns=[*pipeline.work.pipeline.model_dump(mode="json")["columns"]], where="price >= 10"
    )
    columns = healed.work.pipeline.model_dump(mode="json")["columns"]
    columns[3] |= {"null_texts": ["none"]}
    healed = changed(healed, columns=columns)
    again = replay(healed.by("replay-2"), Selection())
    # The log with number 60 divides by zero; of the others those stay that the condition leaves out by now.
    assert again is not None and again.moved == 5
    assert again.left == {"ratio expression": 1, "where filtered": 4}
    assert verify(healed.work, source=True).ok


def test_a_rebuilt_ledger_knows_what_was_left_out_and_by_which_condition(scenario: Make) -> None:
    pipeline = filtering(scenario(shards=2))
    pipeline.put(LOGS)
    batch = pipeline.batch("run-1")
    before = [(total.range, total.rows, total.filtered) for total in pipeline.work.ledger.totals(batch.id)]
    rebuild(pipeline.by("rebuild"))
    assert [(total.range, total.rows, total.filtered) for total in pipeline.work.ledger.totals(batch.id)] == before
    # By now the file has another condition; what was read is compared by its own.
    assert verify(changed(pipeline, where="price < 0").work, source=True).ok


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("event_id <> 'event-54' and event_id <> 'event-56'", {"strange": 2}),
        (f"{WHERE} or event_id = 'event-53'", {"lacking": 1, "unbalanced": 1}),
    ],
)
def test_a_filtered_log_that_is_there_and_a_kept_one_that_is_not_are_found(
    scenario: Make, where: str, wrong: dict[str, int]
) -> None:
    pipeline = filtering(scenario(shards=2))
    pipeline.put(LOGS)
    batch = pipeline.batch("run-1")
    known = pipeline.work.ledger.get(batch.id).filter
    assert known is not None
    if "strange" in wrong:
        where = f"({WHERE}) and {where}"
    with pipeline.work.ledger._engine.begin() as connection:
        connection.execute(update(models.transactions).values(filter={**known, "where": where}))
    proof = verify(pipeline.work, source=True)
    counts = proof.totals.to_dict()
    assert not proof.ok and {name: counts[name] for name in wrong} == wrong
    assert verify(pipeline.work).ok


def test_a_batch_of_which_nothing_is_kept(scenario: Make) -> None:
    nothing = filtering(scenario(shards=2), where="price < 0")
    nothing.put(20)
    batch = nothing.batch("run-1")
    assert batch.rows == 0 and sum(total.filtered for total in nothing.work.ledger.totals(batch.id)) == 20
    assert verify(nothing.work, source=True).ok


@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_an_upsert_merges_what_the_condition_keeps(scenario: Make, type_: str) -> None:
    pipeline = scenario(shards=2, described=partial(customers, type_=type_))
    columns = pipeline.work.pipeline.model_dump(mode="json", exclude_defaults=True)["columns"]
    columns[4] = {"name": "name", "expr": "concat(upper(key('name')), '/', cast(number as string))"}
    pipeline = changed(pipeline, columns=columns, where="number % 2 = 0 or is_deleted")
    changes = [Change(f"id-{n % 30}", n, "eu", n, f"name {n}", is_deleted=n == 55) for n in range(60)]
    put(pipeline.client, pipeline.work.pipeline, changes)
    batch = pipeline.batch("run-1")
    kept = [change for change in changes if change.number is not None and (change.number % 2 == 0 or change.is_deleted)]
    assert batch.rows == len(kept)
    assert sum(total.filtered for total in pipeline.work.ledger.totals(batch.id)) == 60 - len(kept)
    newest = {change.id: change for change in kept if not change.is_deleted}
    rows = {row["id"]: row["name"] for row in rows_of(pipeline.work.storage.uri)}
    if type_ == "copy_on_write":
        assert rows == {id_: f"NAME {change.number}/{change.number}" for id_, change in newest.items()}
