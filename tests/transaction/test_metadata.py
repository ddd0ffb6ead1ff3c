"""A damaged metadata table is found out and made anew while batches wait prepared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.exceptions import ClockBehind, JobFailed, TableError, TimelineUnreadable
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER, Phase
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.system.points import Point
from airflow_provider_slshudi.transaction import plan, steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.checks import assert_exact, phase
from tests.transaction.served import batches, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.fixture
def pipeline(scenario: Make) -> Scenario:
    return served(scenario)


def root(pipeline: Scenario) -> Path:
    return Path(pipeline.work.storage.full(""))


def rows(spark: SparkSession, pipeline: Scenario) -> int:
    """What a reader sees that goes by the metadata table."""
    reader = spark.read.format("hudi").option("hoodie.metadata.enable", "true")
    return int(reader.load(str(root(pipeline))).count())


def lose_last_delta(pipeline: Scenario) -> None:
    """Takes the newest commit off the metadata table's timeline, as where a backup was put back."""
    timeline = root(pipeline) / METADATA_FOLDER / ".hoodie/timeline"
    newest = max(file.name for file in timeline.glob("*_*.deltacommit"))
    for file in timeline.glob(f"{newest.partition('_')[0]}*"):
        file.unlink()


def test_files_that_it_lost_are_found_and_read_again_and_what_is_prepared_stays(
    spark: SparkSession, scenario: Make
) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 2)
    older = pipeline.prepare_next(20)
    later = pipeline.prepare_next(30)
    steps.commit(pipeline.by(later.run_id), later.id, later.token)
    assert metadata.check_metadata(pipeline.by("check")).ok
    younger = pipeline.prepare_next(40)
    lose_last_delta(pipeline)
    found = metadata.check_metadata(pipeline.by("check"))
    assert (found.files, found.lacking, found.gone, found.differing) == (3, 1, 0, 0) and not found.ok
    assert found.examples[0].startswith("event_date=")

    before, after = metadata.rebuild_metadata(pipeline.by("rebuild"))
    assert before == found and after.ok and after.files == 3
    assert rows(spark, pipeline) == 30
    for waiting, expected in ((younger, 40), (older, 50)):
        assert phase(pipeline, waiting) is Phase.INFLIGHT
        work = pipeline.by(waiting.run_id)
        assert steps.commit(work, waiting.id, waiting.token).state is State.COMMITTED
        assert rows(spark, pipeline) == expected
    assert metadata.check_metadata(pipeline.by("check")).ok and verify(pipeline.work, True).ok
    assert_exact(pipeline, 50)


def test_one_that_cannot_be_read_or_is_gone_is_made_anew_and_a_healthy_one_is_left_alone(
    spark: SparkSession, pipeline: Scenario
) -> None:
    batches(pipeline, 2)
    healthy, after = metadata.rebuild_metadata(pipeline.by("check"), only_damaged=True)
    assert healthy is after and healthy.ok and healthy.files == 2
    for file in (root(pipeline) / METADATA_FOLDER / "files").glob("*.hfile"):
        file.write_bytes(b"damaged")
    for file in (root(pipeline) / METADATA_FOLDER / "files").glob(".*.log*"):
        file.write_bytes(b"damaged")
    damaged, after = metadata.rebuild_metadata(pipeline.by("check"), only_damaged=True)
    assert (damaged.unreadable or damaged.lacking) and after.ok
    assert rows(spark, pipeline) == 20 and verify(pipeline.work).ok
    # Without its folder no commit would get through.
    shutil.rmtree(root(pipeline) / METADATA_FOLDER)
    missing, after = metadata.rebuild_metadata(pipeline.by("check"), only_damaged=True)
    assert missing.unreadable and after.ok
    assert_exact(pipeline, 20)


def test_one_with_a_time_that_is_yet_to_come_is_made_anew_although_it_lists_all(pipeline: Scenario) -> None:
    """No driver writes until then, as after a batch of a machine whose clock was ahead."""
    batches(pipeline, 2)
    timeline = root(pipeline) / METADATA_FOLDER / ".hoodie/timeline"
    newest = max(timeline.glob("*_*.deltacommit"))
    newest.rename(newest.with_name(f"{newest.name.partition('_')[0]}_29990101000001000.deltacommit"))
    found, after = metadata.rebuild_metadata(pipeline.by("rebuild"), only_damaged=True)
    assert (found.ahead, found.lacking, found.gone) == ("29990101000001000", 0, 0) and not found.ok
    assert after.ok
    batches(pipeline, 1, first=20)
    assert_exact(pipeline, 30)


def test_a_rebuild_that_dies_half_way_leaves_a_table_that_is_read_and_written(
    spark: SparkSession, pipeline: Scenario
) -> None:
    batches(pipeline, 2)
    waiting = pipeline.prepare_next(20)
    with pytest.raises(JobFailed):
        metadata.rebuild_metadata(pipeline.by("rebuild", launcher=DyingLauncher(Point.METADATA_DELETED)))
    assert rows(spark, pipeline) == 20
    steps.commit(pipeline.by(waiting.run_id), waiting.id, waiting.token)
    assert rows(spark, pipeline) == 30 and metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, 30)


def test_nothing_is_done_without_a_table_nor_where_a_person_has_to_look(pipeline: Scenario) -> None:
    with pytest.raises(TableError, match="no table yet"):
        metadata.check_metadata(pipeline.by("check"))
    batches(pipeline, 1)
    shutil.rmtree(root(pipeline))
    with pytest.raises(TimelineUnreadable, match="See whether it is mounted"):
        metadata.rebuild_metadata(pipeline.by("check"))


def test_the_quarantines_metadata_table_is_made_anew_as_well(scenario: Make) -> None:
    """Damaged, and with a time of the future, for which all drivers would wait."""
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(20)
    pipeline.batch("run-1")
    timeline = Path(pipeline.work.pipeline.quarantine_path.removeprefix("file://"), METADATA_FOLDER, ".hoodie/timeline")
    newest = max(file.name for file in timeline.glob("*_*.deltacommit"))
    for file in timeline.glob(f"{newest.partition('_')[0]}*"):
        file.unlink()
    before = max(timeline.glob("*_*.deltacommit"))
    before.rename(before.with_name("29990101000000000_29990101000001000.deltacommit"))
    pipeline.put(20, first=20)
    opened = plan.tail(pipeline.by("run-2"))
    assert opened is not None
    with pytest.raises((ClockBehind, JobFailed), match="metadata: the newest time on its timeline is 2999"):
        steps.open_instant(pipeline.by("run-2"), opened.id, opened.token)
    found, mended = metadata.rebuild_metadata(pipeline.by("rebuild"))
    assert not found.ok and mended.ok
    assert any("quarantine: " in example for example in (*found.examples, found.unreadable))
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.batch("run-4").rows == 20
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert verify(pipeline.work).ok
