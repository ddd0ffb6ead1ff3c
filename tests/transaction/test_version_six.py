"""Tables of version 6: read by engines with Hudi before 1.0, and without completion times on their timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_slshudi.exceptions import ForeignWrite, TableError, TableMismatch
from airflow_provider_slshudi.hudi.client import instants, services, writer
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, METADATA_FOLDER, Phase
from airflow_provider_slshudi.hudi.schema import table_columns
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.services.version import change, versions
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.former import HUDI_0_15, HUDI_1_0, ask, run
from tests.scenarios import Scenario
from tests.transaction.checks import assert_exact
from tests.transaction.quarantined import assert_each_once, of_version, rows_of
from tests.transaction.served import batches, served
from tests.transaction.test_readers import by_this_hudi, require_merged
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archival does not wait for a moment between two batches."""
    monkeypatch.setattr(maintenance, "_LOOKS", 0)


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    return of_version(served(scenario), 6)


def metadata_timeline(pipeline: Scenario) -> Timeline:
    return Timeline.load(Storage(f"{pipeline.work.storage.uri}/{METADATA_FOLDER}"))


def test_hudi_0_15_and_1_0_read_appends_that_were_clustered_cleaned_and_archived_beside_a_pending_batch(
    spark: SparkSession, pipeline: Scenario
) -> None:
    batches(pipeline, 3)
    assert cluster(pipeline.by("cluster")).files
    batches(pipeline, 3, first=30)
    assert maintenance.clean(pipeline.by("clean")).files
    assert maintenance.archive(pipeline.by("archive")).instants
    batches(pipeline, 1, first=60)
    pipeline.prepare_next(70)
    path = pipeline.work.storage.full("")
    queries = "SELECT * FROM t ORDER BY event_id", "SELECT count(*) FROM t WHERE event_date = '2026-01-02'"
    expected = [by_this_hudi(spark, path, query) for query in queries]
    assert len(expected[0]) == 70
    for former in (HUDI_0_15, HUDI_1_0):
        assert ask(former, *((path, query) for query in queries)) == expected
    assert verify(pipeline.work, True).ok and metadata.check_metadata(pipeline.by("check")).ok
    assert Timeline.load(pipeline.work.storage).layout is LAYOUT_1


@pytest.mark.parametrize(("ordering", "stays"), [("updated_at", 5), (None, 3)])
def test_hudi_0_15_reads_copy_on_write_upserts_and_refuses_version_8(
    spark: SparkSession, upserts: Make, ordering: str | None, stays: int
) -> None:
    pipeline = of_version(upserts("copy_on_write", ordering_field=ordering), 6)
    path = require_merged(spark, pipeline, HUDI_0_15, stays)
    change(of_version(pipeline, 8).work, 8)
    [refused] = ask(HUDI_0_15, (path, "SELECT * FROM t"))
    assert isinstance(refused, str)


def test_a_table_and_its_quarantine_go_to_version_six_and_back(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    batches(pipeline, 2)
    for number, version in enumerate((6, 8, 6, 9)):
        change(pipeline.by("change"), version)
        assert list(versions(pipeline.work).values()) == [str(version)] * 2
        batches(pipeline, 1, first=20 + 10 * number)
        assert metadata.check_metadata(pipeline.by("check")).ok and verify(pipeline.work, True).ok
    assert_each_once(pipeline, 60, 6)


def test_the_metadata_table_is_not_compacted_past_a_batch_that_is_under_way(pipeline: Scenario) -> None:
    batches(pipeline, 4)
    waiting = pipeline.prepare_next(40)
    maintenance.archive(pipeline.by("archive"))
    assert metadata_timeline(pipeline).completed("commit") == []
    assert steps.commit(pipeline.by("run-waiting-40"), waiting.id, waiting.token).state is State.COMMITTED
    assert maintenance.archive(pipeline.by("archive")).instants and metadata_timeline(pipeline).completed("commit")
    batches(pipeline, 1, first=50)
    assert metadata.check_metadata(pipeline.by("check")).ok and len(rows_of(pipeline.work.storage.uri)) == 60
    assert verify(pipeline.work, True).ok


@pytest.mark.parametrize("end", ["committed", "given up"])
def test_a_batch_that_another_client_compacted_past_ends_once_the_metadata_table_was_made_anew(
    spark: SparkSession, pipeline: Scenario, end: str
) -> None:
    batches(pipeline, 2)
    pipeline.put(10, first=20)
    mine = pipeline.by("run-waiting")
    waiting = pipeline.prepare(mine) if end == "committed" else pipeline.open(mine)
    gateway = Gateway.of(spark.sparkContext)
    with writer.client(gateway, mine.pipeline, services._options(mine.pipeline)) as client:
        engine = client.getEngineContext()
        # The class of version 8 and 9 gives a compaction a time of now.
        other = gateway.hudi.metadata.SparkHoodieBackedTableMetadataWriter
        served_by = other.create(gateway.storage_conf, client.getConfig(), engine)
        served_by.performTableServices(gateway.hudi.common.util.Option.empty(), True)
        served_by.close()
    with pytest.raises(TableMismatch, match=r"another client compacted the metadata table .* rebuild-metadata"):
        settle(pipeline.by("run-next"), lambda run: True)
    metadata.rebuild_metadata(pipeline.by("rebuild"))
    settle(pipeline.by("run-next"), lambda run: True)
    assert pipeline.work.ledger.get(waiting.id).state is (State.COMMITTED if end == "committed" else State.ABORTED)
    if end == "given up":
        pipeline.batch("run-again")
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, 30)


def test_an_upsert_does_not_begin_beside_a_write_whose_end_it_could_not_tell(
    spark: SparkSession, upserts: Make
) -> None:
    pipeline = of_version(upserts("copy_on_write"), 6)
    put(pipeline.client, pipeline.work.pipeline, [Change("a", 1, "eu", 1)])
    pipeline.batch("run-1")
    gateway, uri = Gateway.of(spark.sparkContext), pipeline.work.storage.uri
    other = instants.new_instant_time(gateway, uri)
    instants.request(gateway, uri, other)
    put(pipeline.client, pipeline.work.pipeline, [Change("b", 1, "eu", 1)])
    for act in (lambda: pipeline.batch("run-2"), lambda: rebuild(pipeline.by("rebuild"))):
        with pytest.raises(TableError, match=f"commit {other} of another client is REQUESTED|is requested"):
            act()


_LAKE = """
import json
rows = [(f"old-{n}", None, 0.5, n, None, f"2026-02-{1 + n % 10:02}") for n in range(50)]
frame = spark.createDataFrame(rows, given["ddl"])
options = {
    "hoodie.table.name": given["name"],
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.datasource.write.partitionpath.field": "event_date",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.cleaner.policy.failed.writes": "NEVER",
}
for _ in range(given["writes"]):
    frame.write.format("hudi").options(**options).mode("append").save(given["path"])
told = {}
if given["pending"]:
    told["clustering"] = spark.sql(f"call run_clustering(path => '{given['path']}', op => 'schedule')").count()
    hudi = spark._jvm.org.apache.hudi
    config = hudi.config.HoodieWriteConfig.newBuilder().withPath(given["path"]).forTable(given["name"]).build()
    engine = hudi.client.common.HoodieSparkEngineContext(spark._jsc)
    told["commit"] = hudi.client.SparkRDDWriteClient(engine, config).startCommit()
told["rows"] = spark.read.format("hudi").load(given["path"]).count()
"""


def test_a_lake_of_hudi_0_15_is_continued_without_a_rewrite_and_its_writer_goes_on(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    table, storage = pipeline.work.pipeline.table, pipeline.work.storage
    ddl = ", ".join(f"{name} {type_}" for name, type_ in table_columns(pipeline.work.pipeline))
    given: dict[str, Any] = {"ddl": ddl, "name": table.name, "path": storage.full(""), "writes": 3, "pending": True}
    made = run(HUDI_0_15, _LAKE, given)
    assert made["rows"] == 150
    before = dict(storage.walk())
    pending = [(one.time, one.action, one.phase) for one in Timeline.load(storage).pending()]
    assert [action for _, action, _ in pending] == ["clustering", "commit"]
    with pytest.raises(ForeignWrite):
        settle(pipeline.by("run-1"), lambda run: True)
    rebuild(pipeline.by("rebuild"))
    batches(pipeline, 2)
    assert versions(pipeline.work) == {storage.uri: "6"}
    assert before.items() <= dict(storage.walk()).items()
    assert [(one.time, one.action, one.phase) for one in Timeline.load(storage).pending()] == pending
    assert pending[1][0] == made["commit"] and pending[1][2] is Phase.REQUESTED

    assert run(HUDI_0_15, _LAKE, {**given, "writes": 1, "pending": False})["rows"] == 150 + 20 + 50
    with pytest.raises(ForeignWrite):
        settle(pipeline.by("run-2"), lambda run: True)
    rebuild(pipeline.by("rebuild"))
    batches(pipeline, 1, first=20)
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert ask(HUDI_0_15, (storage.full(""), "SELECT count(*) AS n FROM t"))[0] == [{"n": 230}]


_DELETION = """
from airflow_provider_slshudi.spark.runtime import quiet

quiet(spark._jvm)
spark.sql(f"set hoodie.cleaner.policy.failed.writes={given['policy']}")
spark.sql(f"create table ads using hudi location '{given['path']}'")
spark.sql("delete from ads where event_id = 'event-3'")
told = spark.table("ads").count()
"""


@pytest.mark.long
@pytest.mark.parametrize(("policy", "remains"), [("never", True), ("lazy", False)])
def test_a_deletion_by_hudi_0_15_leaves_a_prepared_batch_alone_where_its_policy_is_never(
    scenario: Make, policy: str, remains: bool
) -> None:
    pipeline = of_version(scenario(shards=1), 6)
    batches(pipeline, 1)
    waiting = pipeline.prepare_next(10)
    storage = pipeline.work.storage
    assert run(HUDI_0_15, _DELETION, {"path": storage.full(""), "policy": policy.upper()}) == 9
    assert (waiting.instant in [instant.time for instant in Timeline.load(storage).pending()]) == remains


_CUSTOMERS = """
rows = [(f"k{n}", n + given["more"], given["at"], None, None, None, f"r{n % 10}") for n in given["keys"]]
frame = spark.createDataFrame(rows, given["ddl"])
options = {
    "hoodie.table.name": given["name"],
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "updated_at",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": str(given["buckets"]),
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.cleaner.policy.failed.writes": "NEVER",
}
frame.write.format("hudi").options(**options).mode("append").save(given["path"])
found = spark.read.format("hudi").load(given["path"])
told = sorted([row.id, row.number] for row in found.select("id", "number").collect())
"""


@pytest.mark.long
def test_a_lake_of_copy_on_write_upserts_of_hudi_0_15_is_continued_and_its_writer_goes_on(
    spark: SparkSession, upserts: Make
) -> None:
    pipeline = of_version(upserts("copy_on_write", delete_marker=None), 6)
    table, storage = pipeline.work.pipeline.table, pipeline.work.storage
    assert table.upsert is not None
    ddl = ", ".join(f"{name} {type_}" for name, type_ in table_columns(pipeline.work.pipeline))
    lake = {"ddl": ddl, "name": table.name, "path": storage.full(""), "buckets": table.upsert.buckets}

    def written(keys: list[int], at: int, more: int) -> list[list[Any]]:
        told: list[list[Any]] = run(HUDI_0_15, _CUSTOMERS, {**lake, "keys": keys, "at": at, "more": more})
        return told

    def changed(*changes: tuple[int, int, int]) -> None:
        logs = [Change(f"k{key}", at, f"r{key % 10}", number) for key, at, number in changes]
        put(pipeline.client, pipeline.work.pipeline, logs)

    expected = {f"k{key}": key for key in range(40)}
    assert written(list(range(40)), 10, 0) == sorted([key, number] for key, number in expected.items())
    before = dict(storage.walk())
    changed((0, 20, 1_000), (1, 5, 1_001), (40, 20, 1_040))
    with pytest.raises(ForeignWrite):
        settle(pipeline.by("run-1"), lambda run: True)
    rebuild(pipeline.by("rebuild"))
    pipeline.batch("run-1")
    expected |= {"k0": 1_000, "k40": 1_040}
    assert before.items() <= dict(storage.walk()).items()
    assert versions(pipeline.work) == {storage.uri: "6"}

    expected |= {f"k{key}": key + 2_000 for key in (0, 1, 40)}
    assert written([0, 1, 40], 30, 2_000) == sorted([key, number] for key, number in expected.items())
    rebuild(pipeline.by("rebuild"))
    changed((1, 40, 3_001), (2, 40, 3_002))
    pipeline.batch("run-2")
    expected |= {"k1": 3_001, "k2": 3_002}
    rows = spark.read.format("hudi").load(storage.full("")).select("id", "number").collect()
    assert {row.id: row.number for row in rows} == expected and len(rows) == len(expected)
    former = ask(HUDI_0_15, (storage.full(""), "SELECT id, number FROM t"))[0]
    assert {row["id"]: row["number"] for row in former} == expected and len(former) == len(expected)
    assert metadata.check_metadata(pipeline.by("check")).ok
