"""Hudi's version of a table: that of a new one, that of one that is there, and the act that changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import BatchUnderWay, ConfigError, JobFailed, TableError, TableMismatch
from airflow_provider_slshudi.handover.job_order import JobOrder, Verb
from airflow_provider_slshudi.hudi import properties, statistics
from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.services.metadata import mend_indexes
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.services.version import change, versions
from airflow_provider_slshudi.spark.launch import Launcher
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.checks import assert_exact
from tests.transaction.quarantined import changed, of_version
from tests.transaction.served import batches
from tests.upserts import Change, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]
SORTED = {"clustering": {"sort": ["clicks"]}}


def customers_of(spark: SparkSession, pipeline: Scenario) -> list[tuple[str, int]]:
    table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    return sorted((row.id, row.number) for row in table.select("id", "number").collect())


@pytest.mark.parametrize("version", [None, 8])
def test_a_new_table_is_of_the_newest_version_or_of_that_which_its_file_names(
    upserts: Make, version: int | None
) -> None:
    pipeline = upserts()
    if version is not None:
        pipeline = of_version(pipeline, version)
    put(pipeline.client, pipeline.work.pipeline, [Change("a", 1, "eu", 1)])
    pipeline.batch("run-1")
    assert list(versions(pipeline.work).values()) == [str(version or 9)]
    told = properties.read(pipeline.work.storage) or {}
    names = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
    assert [told.get(name) for name in names] == ["updated_at"] * 2


def test_a_table_of_another_version_than_its_file_says_stops_batches_until_it_is_changed(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    pipeline.put(10, first=10)
    named = of_version(pipeline, 8).by("run-2")
    with pytest.raises(TableMismatch, match=r"version 9, .* says 8: run `slshudi table version ad_events --to 8`"):
        pipeline.open(named)
    # A step that failed is tried again by its own run.
    settle(named, lambda run: True)
    with pytest.raises(ConfigError, match="says `version: 9`: write 8 there first"):
        change(of_version(pipeline, 9).by("change"), 8)
    change(of_version(pipeline, 8).by("change"), 8)
    prepared = pipeline.prepare(named)
    assert steps.commit(named, prepared.id, prepared.token).state is State.COMMITTED
    assert_exact(pipeline, 20)


def test_an_append_table_changes_both_ways_and_keeps_its_bounds_and_its_quarantine(
    spark: SparkSession, scenario: Make
) -> None:
    pipeline = scenario(shards=1, misfits="quarantine", maintenance=SORTED)
    batches(pipeline, 2)
    assert list(versions(pipeline.work).values()) == ["9", "9"]
    for number, version in enumerate((8, 9)):
        change(pipeline.by("change"), version)
        assert list(versions(pipeline.work).values()) == [str(version)] * 2
        assert statistics.Indexes.of(pipeline.work.storage).bounded == ["clicks"]
        batches(pipeline, 1, first=20 + 10 * number)
        assert metadata.check_metadata(pipeline.by("check")).ok and verify(pipeline.work, True).ok
    table = spark.read.format("hudi").load(pipeline.work.storage.full(""))
    assert (
        table.where("event_id like 'event-%'").count()
        + spark.read.format("hudi").load(pipeline.work.pipeline.quarantine_path).count()
        == 40
    )


@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
def test_upserts_change_both_ways_and_merge_as_before(spark: SparkSession, upserts: Make, type_: str) -> None:
    pipeline = upserts(type_)
    rows = {}
    for number, version in enumerate((None, 8, 9)):
        if version is not None:
            change(pipeline.by("change"), version)
        # The second of each pair is older: it changes nothing, whichever name its version has for the ordering field.
        for at in (10 * number + 1, 10 * number):
            put(pipeline.client, pipeline.work.pipeline, [Change("same", at, "eu", at), Change(str(at), 1, "eu", at)])
            pipeline.batch(f"run-{at}")
            rows[str(at)] = at
        rows["same"] = 10 * number + 1
        assert customers_of(spark, pipeline) == sorted(rows.items())
    assert list(versions(pipeline.work).values()) == ["9"]
    assert metadata.check_metadata(pipeline.by("check")).ok


def test_a_quarantine_that_is_made_later_is_of_its_tables_version(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    change(pipeline.by("change"), 8)
    later = changed(pipeline, misfits="quarantine")
    batches(later, 1, first=10)
    assert list(versions(later.work).values()) == ["8", "8"]
    batches(later, 1, first=20)


class Meanwhile:
    """Runs jobs as another launcher does, and does something else before the first one of a verb."""

    def __init__(self, launcher: Launcher, verb: Verb, act: Callable[[], object]) -> None:
        self._launcher, self._act = launcher, act
        self._verb: Verb | None = verb

    def run(self, verb: Verb, order: JobOrder, secrets: Mapping[str, str]) -> float | None:
        if verb is self._verb:
            self._verb = None
            self._act()
        return self._launcher.run(verb, order, secrets)


def test_a_batch_amid_a_change_is_not_compacted_by_hudis_own_writer(upserts: Make) -> None:
    pipeline = upserts()

    def batch(at: int) -> None:
        put(pipeline.client, pipeline.work.pipeline, [Change("same", at, "eu", at)])
        pipeline.batch(f"run-{at}")

    batch(1)
    batch(2)
    launcher = Meanwhile(pipeline.work.launcher, Verb.COMPACT, lambda: batch(3))
    with pytest.raises(TableError, match="a batch was committed while log files were compacted: pause the DAGs"):
        change(pipeline.by("change", launcher=launcher), 8)
    assert list(versions(pipeline.work).values()) == ["9"]
    change(pipeline.by("change"), 8)
    assert list(versions(pipeline.work).values()) == ["8"]


def test_a_batch_that_is_under_way_is_not_rolled_back_by_a_change(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    waiting = pipeline.prepare_next(10)
    with pytest.raises(BatchUnderWay, match=f"{waiting.id} of tail/run-waiting-10 is PREPARED, .* pause the DAGs"):
        change(pipeline.by("change"), 8)
    assert list(versions(pipeline.work).values()) == ["9"]
    steps.commit(pipeline.by("run-waiting-10"), waiting.id, waiting.token)
    change(pipeline.by("change"), 8)
    assert_exact(pipeline, 20)


def test_partial_updates_stay_at_version_nine(upserts: Make) -> None:
    pipeline = upserts(delete_marker=None, partial_update=True)
    put(pipeline.client, pipeline.work.pipeline, [Change("a", 1, "eu", 1)])
    pipeline.batch("run-1")
    with pytest.raises(ConfigError, match="version 8 has no partial_update"):
        change(pipeline.by("change"), 8)
    with pytest.raises(ConfigError, match="Input should be 6, 8 or 9"):
        change(pipeline.by("change"), 7)


def test_a_change_that_dies_half_way_is_repeated(scenario: Make) -> None:
    pipeline = scenario(shards=1, maintenance=SORTED)
    batches(pipeline, 2)
    with pytest.raises(JobFailed):
        change(pipeline.by("change", launcher=DyingLauncher(Point.VERSION_CHANGED)), 8)
    batches(pipeline, 1, first=20)
    change(pipeline.by("change"), 8)
    mend_indexes(pipeline.by("mend"))
    batches(pipeline, 1, first=30)
    assert list(versions(pipeline.work).values()) == ["8"]
    assert statistics.Indexes.of(pipeline.work.storage).bounded == ["clicks"]
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, 40)


@pytest.mark.parametrize("again", [True, False], ids=["repeated", "given up"])
def test_a_table_whose_properties_were_put_back_beside_a_changed_metadata_table_goes_on(
    scenario: Make, again: bool
) -> None:
    """As where the driver dies while Hudi changes the table's properties, after those of the metadata table."""
    pipeline = scenario(shards=1, maintenance=SORTED)
    batches(pipeline, 1)
    before = pipeline.work.storage.read(PROPERTIES)
    assert before is not None
    change(pipeline.by("change"), 8)
    properties.replace(pipeline.work.storage, before)
    batches(pipeline, 1, first=10)
    if again:
        change(pipeline.by("change"), 8)
    batches(pipeline, 1, first=20)
    assert list(versions(pipeline.work).values()) == ["8" if again else "9"]
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, 30)
