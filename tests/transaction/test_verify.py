"""Tables in which rows are missing, doubled, foreign or damaged: each kind is found, with shard and range."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlalchemy import create_engine, update

from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.local.process import LocalSls
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.services.verification import RangeProof, verify
from airflow_provider_slshudi.sls.service import LogService
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.resolve import _commit_order
from tests.scenarios import Scenario
from tests.transaction.damage import damaged_batch, some_rows, write_as_somebody_else

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOGS = 100


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """One shard, so that a batch is one range; one healthy batch is committed and logs for another wait."""
    made = scenario(shards=1)
    made.put(LOGS)
    made.batch("run-1")
    made.put(LOGS, first=LOGS)
    return made


def the_range(pipeline: Scenario, batch: Transaction) -> Range:
    (found,) = pipeline.work.ledger.ranges(batch.id)
    return found


def only_wrong(wrong: list[RangeProof], batch: Transaction, of: Range) -> Mapping[str, int]:
    (found,) = wrong
    assert (found.shard, found.begin, found.end) == (of.shard, of.begin, of.end)
    assert (found.transaction, found.instant) == (batch.id, batch.instant)
    return found.counts.to_dict()


def test_a_ledger_whose_coverage_is_not_what_was_committed_proves_nothing(pipeline: Scenario) -> None:
    (covered,) = pipeline.work.ledger.coverage("ad_events")
    engine = pipeline.work.ledger._engine
    with engine.begin() as connection:
        connection.execute(update(models.coverage).values(end_cursor=covered.end - 1))
    proof = verify(pipeline.work)
    assert proof.totals.ok and not proof.ok
    lost = Range(0, covered.end - 1, covered.end)
    assert proof.complaint() == f"{lost}: committed and not covered, so it will be read again"
    assert proof.to_dict()["coverage"] == {"uncovered": [str(lost)], "unrecorded": [], "twice": []}


@pytest.mark.capability("verify")
def test_a_healthy_table_is_proven_per_shard_and_range_and_against_the_service(scenario: Make) -> None:
    pipeline = scenario(shards=3)
    pipeline.put(300)
    first = pipeline.batch("run-1")
    pipeline.put(150, first=300)
    second = pipeline.batch("run-2")
    alone = verify(pipeline.work).to_dict()
    assert alone["totals"] == {"recorded": 450, "rows": 450, "missing": 0, "doubled": 0, "foreign": 0}
    proof = verify(pipeline.work, source=True)
    assert proof.ok and proof.complaint() == "" and proof.wrong == [] and proof.as_of == second.completed
    shown = json.loads(json.dumps(proof.to_dict()))
    nothing = {"missing": 0, "doubled": 0, "foreign": 0, "not_comparable": 0, "lacking": 0, "strange": 0}
    assert shown["totals"] == {"recorded": 450, "rows": 450, "compared": 45, **nothing}
    assert (shown["ok"], shown["rows"], shown["unreadable"], shown["unreadable_example"]) == (True, 450, 0, None)
    wanted = [(batch, item) for batch in (first, second) for item in pipeline.work.ledger.totals(batch.id)]
    assert shown["ranges"] == [
        {
            **{"shard": item.range.shard, "begin": item.range.begin, "end": item.range.end, "gap": False},
            **{"transaction": batch.id, "instant": batch.instant, "recorded": item.rows, "rows": item.rows},
            **{"compared": len(item.range), **nothing, "examples": {}},
        }
        for batch, item in sorted(wanted, key=lambda pair: pair[1].range)
    ]
    assert [item["shard"] for item in shown["shards"]] == [0, 1, 2]
    assert sum(item["rows"] for item in shown["shards"]) == 450
    assert pipeline.work.storage.names(".hoodie/slshudi/verify") == []


def test_rows_that_were_recorded_and_are_not_there_are_missing(pipeline: Scenario) -> None:
    batch = damaged_batch(pipeline, lambda keys: keys[3:])
    proof = verify(pipeline.work)
    counts = only_wrong(proof.wrong, batch, the_range(pipeline, batch))
    assert counts == {"recorded": LOGS, "rows": LOGS - 3, "missing": 3, "doubled": 0, "foreign": 0}
    assert not proof.ok and proof.complaint().startswith(f"3 missing rows: {the_range(pipeline, batch)} of {batch.id}")
    assert only_wrong(verify(pipeline.work, source=True).wrong, batch, the_range(pipeline, batch))["lacking"] == 3


def test_a_row_that_its_own_batch_wrote_twice_is_doubled(pipeline: Scenario) -> None:
    batch = damaged_batch(pipeline, lambda keys: [*keys, keys[0], keys[0]])
    proof = verify(pipeline.work)
    counts = only_wrong(proof.wrong, batch, the_range(pipeline, batch))
    assert counts == {"recorded": LOGS, "rows": LOGS + 2, "missing": 0, "doubled": 2, "foreign": 0}
    assert proof.wrong[0].examples["row"].startswith("0-")


def test_a_missing_row_is_not_made_up_for_by_a_doubled_one(pipeline: Scenario) -> None:
    batch = damaged_batch(pipeline, lambda keys: [*keys[1:], keys[1]])
    counts = only_wrong(verify(pipeline.work).wrong, batch, the_range(pipeline, batch))
    assert counts == {"recorded": LOGS, "rows": LOGS, "missing": 1, "doubled": 1, "foreign": 0}


def test_keys_that_name_no_shard_and_cursor_are_unreadable_and_their_logs_missing(pipeline: Scenario) -> None:
    beyond = "0-9999999999999999999-0"  # more than a cursor can be
    kinds = ["damaged", "0-1", "", "0-01-0", beyond]
    batch = damaged_batch(
        pipeline, lambda keys: [*(f"{k} {new}" for k, new in zip(keys, kinds, strict=False)), *keys[5:]]
    )
    proof = verify(pipeline.work)
    counts = only_wrong(proof.wrong, batch, the_range(pipeline, batch))
    assert (counts["missing"], proof.unreadable, proof.rows) == (5, 5, 2 * LOGS)
    assert proof.unreadable_example in kinds and "5 unreadable" in proof.complaint()


def test_rows_that_another_client_wrote_again_are_doubled(spark: SparkSession, pipeline: Scenario) -> None:
    batch = pipeline.batch("run-2")
    write_as_somebody_else(spark, pipeline, some_rows(pipeline, 4))
    proof = verify(pipeline.work)
    assert (proof.totals.doubled, proof.totals.foreign, proof.totals.missing) == (4, 0, 0)
    assert len(proof.wrong) == 1 and proof.wrong[0].transaction <= batch.id


def test_rows_of_another_client_inside_and_outside_of_the_coverage_are_foreign(
    spark: SparkSession, pipeline: Scenario
) -> None:
    def beyond(key: str) -> str:
        shard, cursor, index = key.split("-")
        return f"{shard}-{int(cursor) + 1_000_000}-{index}"

    foreign = [
        some_rows(pipeline, 5, beyond),
        some_rows(pipeline, 2, lambda key: f"7{key[1:]}"),
        some_rows(pipeline, 1, lambda key: f"{key.rpartition('-')[0]}-500"),
    ]
    for rows in foreign:
        write_as_somebody_else(spark, pipeline, rows)
    proof = verify(pipeline.work, source=True)
    old, new = proof.shards
    assert (old.shard, old.outside, old.counts.foreign, new.shard, new.outside) == (0, 5, 6, 7, 2)
    assert old.example is not None and old.example.startswith("0-") and new.example is not None
    (inside,) = proof.wrong
    assert inside.counts.foreign == 1 and inside.counts.strange == 1 and inside.examples["row"].endswith("-500")
    assert proof.totals.missing == proof.totals.doubled == proof.totals.lacking == 0
    assert "shard 7 outside all ranges, like 7-" in proof.complaint()


def test_rows_that_another_client_deleted_or_changed_are_noticed(spark: SparkSession, pipeline: Scenario) -> None:
    spark.sql(f"create table ads_by_hand using hudi location '{pipeline.work.storage.uri}'")
    try:
        spark.sql("delete from ads_by_hand where event_id in ('event-3', 'event-4')")
        spark.sql("update ads_by_hand set price = 0 where event_id = 'event-7'")
    finally:
        spark.sql("drop table ads_by_hand")
    proof = verify(pipeline.work)
    assert proof.totals.to_dict() == {"recorded": LOGS, "rows": LOGS - 2, "missing": 3, "doubled": 0, "foreign": 1}


def test_logs_of_the_service_that_neither_table_nor_ledger_has_are_found(pipeline: Scenario, tmp_path: Path) -> None:
    def moved(key: str) -> str:
        return f"{key} {key.rpartition('-')[0]}-77"

    batch = damaged_batch(pipeline, lambda keys: [moved(keys[0]), *keys[3:]])
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    with engine.begin() as connection:
        of_batch = models.ranges.c.transaction_id == batch.id
        connection.execute(update(models.ranges).where(of_batch).values(rows=LOGS - 2))
    engine.dispose()
    assert verify(pipeline.work).ok
    proof = verify(pipeline.work, source=True)
    counts = only_wrong(proof.wrong, batch, the_range(pipeline, batch))
    assert (counts["missing"], counts["lacking"], counts["strange"], counts["compared"]) == (0, 3, 1, 10)
    begin = the_range(pipeline, batch).begin
    assert begin <= int(proof.wrong[0].examples["lacking"]) < begin + 10


def test_what_the_service_no_longer_holds_is_not_comparable_and_not_called_fine(
    scenario: Make, server: LocalSls
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(LOGS)
    pipeline.batch("run-1")
    work = pipeline.work
    begin = work.connect().begin(0)

    class Later:
        """A service that has dropped the first four log groups by the time it is asked."""

        def __init__(self, service: Any) -> None:
            self._service = service

        def begin(self, shard: int) -> int:
            return begin + 4

        def __getattr__(self, name: str) -> Any:
            return getattr(self._service, name)

    later = replace(work, connect=lambda: cast(LogService, Later(work.connect())))
    proof = verify(later, source=True)
    assert proof.ok
    assert (proof.totals.compared, proof.totals.not_comparable, proof.totals.lacking) == (6, 4, 0)


def test_a_batch_that_commits_while_the_table_is_verified_is_left_out(pipeline: Scenario) -> None:
    work = pipeline.by("run-2")
    prepared = pipeline.prepare(work)

    class CommitsFirst:
        """Runs the verification's job after another process has committed a batch."""

        def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> None:
            if verb is Verb.VERIFY:
                steps.commit(work, prepared.id, prepared.token)
            work.launcher.run(verb, order, secrets)

    meanwhile = verify(replace(pipeline.work, launcher=CommitsFirst()))
    assert meanwhile.ok and meanwhile.rows == LOGS
    after = verify(pipeline.work)
    assert after.ok and after.rows == 2 * LOGS and after.as_of > meanwhile.as_of


def test_a_commit_that_the_ledger_was_not_told_of_yet_is_compared(pipeline: Scenario) -> None:
    work: Work = pipeline.by("run-2")
    prepared = pipeline.prepare(work)
    work.launcher.run(Verb.COMMIT, _commit_order(work, prepared), {})
    proof = verify(pipeline.work)
    assert proof.ok and proof.rows == 2 * LOGS and len(proof.ranges) == 2
