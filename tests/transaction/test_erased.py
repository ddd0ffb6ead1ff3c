"""Rows that another client took out of the table: accepted with a reason, known to the proof, never read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from airflow_provider_slshudi.config.options import PROTOCOL_OPTIONS
from airflow_provider_slshudi.exceptions import ForeignWrite, TableError
from airflow_provider_slshudi.handover.erasures import Erasure
from airflow_provider_slshudi.handover.names import Act
from airflow_provider_slshudi.hudi.client.writer import upsert_options
from airflow_provider_slshudi.hudi.timeline import CHANGES
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.repair.actions import perform
from airflow_provider_slshudi.repair.erase import Erased, accept_erased
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance, rewrite
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.evidence import require_agreement
from tests.scenarios import Scenario
from tests.transaction.damage import damaged_batch, some_rows, write_as_somebody_else
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
LOGS = 450
NAME = "ad_events"


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    """One shard; a batch over three days is committed."""
    made = scenario(shards=1)
    made.put(LOGS)
    made.batch("run-1")
    return made


@contextmanager
def as_table(spark: SparkSession, uri: str) -> Iterator[str]:
    """The table by a name that SQL knows."""
    spark.sql(f"create table by_others using hudi location '{uri}'")
    try:
        yield "by_others"
    finally:
        spark.sql("drop table by_others")


def run_sql(spark: SparkSession, pipeline: Scenario, *statements: str, uri: str = "", **values: str) -> None:
    with as_table(spark, uri or pipeline.work.storage.uri) as table:
        for statement in statements:
            spark.sql(statement.format(t=table, **values))


def newest(pipeline: Scenario) -> str:
    return pipeline.work.timeline().completed(*CHANGES)[-1].time


def accept(pipeline: Scenario) -> Erased:
    return accept_erased(pipeline.by("repair"), "the user asked for it")


def everything(pipeline: Scenario) -> Transaction | None:
    return plan.backfill(pipeline.by("backfill"), plan.BackfillRequest(everything=True))


DELETE = "delete from {t} where event_id in ('event-3', 'event-4')"
DROP = "alter table {t} drop partition (event_date='2026-01-02')"


@pytest.mark.capability("erasure by others")
def test_what_others_erased_is_accepted_and_all_other_rows_are_proven(spark: SparkSession, pipeline: Scenario) -> None:
    work, storage = pipeline.work, pipeline.work.storage
    dropped = sum(
        pq.read_metadata(file).num_rows for file in Path(storage.full("event_date=2026-01-02")).glob("*.parquet")
    )
    run_sql(spark, pipeline, DELETE)
    deleted = newest(pipeline)
    run_sql(spark, pipeline, DROP)
    with pytest.raises(ForeignWrite, match="slshudi table accept-erased ad_events"):
        require_agreement(work)
    assert verify(work).totals.missing == dropped + 2

    said = perform(pipeline.by("repair-1"), lambda run: None, Act.ACCEPT_ERASED, "ada", "retention")
    assert said == (
        f"instant {deleted} (DELETE_PREPPED) took 2 rows out of the table; "
        f"instant {newest(pipeline)} (DELETE_PARTITION) took {dropped} rows out of the table"
    )
    proof = verify(work, source=True)
    assert proof.ok and proof.totals.to_dict() == {
        **{"recorded": LOGS, "rows": LOGS - dropped - 2, "missing": 0, "doubled": 0, "foreign": 0},
        **{"compared": LOGS // 10, "not_comparable": 0, "lacking": 0, "strange": 0, "erased": dropped + 2},
    }
    assert everything(pipeline) is None, "what was erased is read again"
    pipeline.put(50, first=LOGS)
    assert pipeline.batch("run-2").rows == 50
    assert accept(pipeline) == Erased([], []), "nothing is left to be accepted"

    # Neither a lost ledger, nor a clustering, nor a clean of the old files forgets what was accepted.
    assert rebuild(pipeline.by("rebuild")).committed == 2
    rewrite.cluster(pipeline.by("cluster"))
    maintenance.clean(pipeline.by("clean"))
    assert verify(work).totals.to_dict()["erased"] == dropped + 2
    assert verify(work).ok
    assert everything(pipeline) is None

    file = next(Path(storage.full("event_date=2026-01-03")).glob("*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(rows.slice(1), file, store_schema=False)
    assert verify(work).totals.missing == 1, "another row that goes is missing"


@pytest.mark.long
def test_a_change_that_added_or_changed_rows_is_no_erasure(spark: SparkSession, pipeline: Scenario) -> None:
    work = pipeline.work
    run_sql(spark, pipeline, DELETE)
    deleted = newest(pipeline)
    run_sql(spark, pipeline, "update {t} set price = 0 where event_id = 'event-7'")
    updated = newest(pipeline)
    for _ in range(2):
        with pytest.raises(ForeignWrite, match=rf"instant {updated} \(UPSERT_PREPPED\).* added or changed 1 rows"):
            accept(pipeline)
        with pytest.raises(ForeignWrite, match=deleted):
            require_agreement(work)
    run_sql(spark, pipeline, "alter table {t} add columns (extra int)")
    write_as_somebody_else(spark, pipeline, some_rows(pipeline, 4, lambda key: f"7{key[1:]}"))
    overwritten = "insert overwrite {t} select * from {t} where event_id = 'event-9'"
    run_sql(spark, pipeline, overwritten)

    # A rebuild takes all of them as they are; of these only the deletion is known to have taken rows away alone.
    rebuild(pipeline.by("rebuild"))
    done = accept(pipeline)
    assert done.accepted == [Erasure("table", deleted, "DELETE_PREPPED", 2)]
    assert len(done.left) == 4 and updated in done.left
    proof = verify(work)
    assert proof.totals.erased == 2 and not proof.ok
    assert proof.totals.missing == LOGS - 2 - proof.totals.rows + proof.totals.foreign


@pytest.mark.long
def test_rows_that_were_there_twice_before_they_were_erased_are_no_fault_of_the_erasure(
    spark: SparkSession, pipeline: Scenario
) -> None:
    pipeline.put(20, first=LOGS)
    damaged_batch(pipeline, lambda keys: [*keys, keys[0]])
    assert verify(pipeline.work).totals.doubled == 1
    run_sql(spark, pipeline, *(f"alter table {{t}} drop partition (event_date='2026-01-0{day}')" for day in (1, 2, 3)))
    assert sum(item.rows or 0 for item in accept(pipeline).accepted) == LOGS + 21
    totals = verify(pipeline.work).totals
    assert totals.ok and (totals.rows, totals.erased) == (0, LOGS + 20)


@pytest.mark.long
def test_a_row_that_comes_back_after_it_was_erased_is_doubled(spark: SparkSession, pipeline: Scenario) -> None:
    rows = some_rows(pipeline, 1)
    event = rows["event_id"][0].as_py()
    run_sql(spark, pipeline, "delete from {t} where event_id = '{event}'", event=event)
    accept(pipeline)
    assert verify(pipeline.work).ok
    write_as_somebody_else(spark, pipeline, rows)
    assert verify(pipeline.work).totals.doubled == 1


@pytest.mark.long
def test_what_a_change_took_cannot_be_told_once_its_old_files_are_gone(spark: SparkSession, pipeline: Scenario) -> None:
    run_sql(spark, pipeline, DROP)
    for file in Path(pipeline.work.storage.full("event_date=2026-01-02")).glob("*.parquet"):
        file.unlink()
    with pytest.raises(TableError, match=r"file group .*, whose file as it was before is gone") as found:
        accept(pipeline)
    assert "2026-01-02" not in str(found.value), "a partition may be a value of a log"
    with pytest.raises(ForeignWrite):
        require_agreement(pipeline.work)


@pytest.mark.long
def test_logs_that_others_erased_from_the_quarantine_are_accepted_too(spark: SparkSession, scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(100)
    pipeline.batch("run-1")
    aside = pipeline.work.pipeline.quarantine_path
    run_sql(spark, pipeline, "delete from {t} where _hoodie_record_key like '0-%-0'", uri=aside)
    with pytest.raises(ForeignWrite, match="slshudi table accept-erased ad_events"):
        require_agreement(pipeline.work)
    ((took,), left) = (accept(pipeline).accepted, accept(pipeline).left)
    assert (took.of, took.rows, left) == ("quarantine", 10, [])
    proof = verify(pipeline.work)
    assert proof.ok and (proof.totals.rows, proof.totals.quarantined, proof.totals.erased) == (90, 0, 10)
    rebuild(pipeline.by("rebuild"))
    pipeline.put(50, first=100)
    assert pipeline.batch("run-2").rows == 50
    assert verify(pipeline.work).ok

    run_sql(spark, pipeline, "delete from {t} where _hoodie_record_key like '0-%'", uri=aside)
    assert rebuild(pipeline.by("rebuild-2")).committed == 2, "the ledger takes the quarantine as it is"
    require_agreement(pipeline.work)


@pytest.mark.long
@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_a_deletion_from_a_table_with_upserts_leaves_no_key_on_record(
    spark: SparkSession, upserts: Make, type_: str
) -> None:
    pipeline = upserts(type_)
    put(pipeline.client, pipeline.work.pipeline, [Change(f"c{number}", 1, "eu") for number in range(20)])
    pipeline.batch("run-1")
    run_sql(spark, pipeline, "delete from {t} where id in ('c1', 'c2', 'c3')")
    assert [item.rows for item in accept(pipeline).accepted] == [3]
    require_agreement(pipeline.work)
    storage = pipeline.work.storage
    assert [name for name in storage.names(".hoodie/slshudi/erased") or () if name.endswith(".parquet")] == []
    run_sql(spark, pipeline, "update {t} set name = 'x' where id = 'c4'")
    with pytest.raises(ForeignWrite, match="added or changed 1 rows"):
        accept(pipeline)


@pytest.mark.long
@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_a_deletion_that_dropped_a_column_is_no_erasure(spark: SparkSession, upserts: Make, type_: str) -> None:
    pipeline = upserts(type_)
    changes = [Change(f"c{number}", 1, "eu", number, "a name", 1.5) for number in range(20)]
    put(pipeline.client, pipeline.work.pipeline, changes)
    pipeline.batch("run-1")
    uri, table = pipeline.work.storage.uri, pipeline.work.pipeline.table
    assert table.upsert is not None and table.partition is not None
    rows = spark.read.format("hudi").load(uri).filter("id = 'c1'")
    rows = rows.drop("score", *(name for name in rows.columns if name.startswith("_hoodie")))
    marked = "if(rand() < 2, true, null)"  # may be NULL, as far as Spark knows
    rows = rows.selectExpr(*(name for name in rows.columns if name != "is_deleted"), f"{marked} as is_deleted")
    options = {
        **PROTOCOL_OPTIONS,
        **upsert_options(table.upsert),
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.table.type": type_.upper(),
        "hoodie.datasource.write.partitionpath.field": table.partition.name,
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    }
    rows.selectExpr("*", f"{marked} as _hoodie_is_deleted").write.format("hudi").options(**options).mode("append").save(
        uri
    )
    with pytest.raises(ForeignWrite, match="changed the table's columns, so it is no erasure"):
        accept(pipeline)
