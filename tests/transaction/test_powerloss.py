"""A loss of power after a driver's death: what the ledger relies on is on the disk before the ledger says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_provider_slshudi.config.options import BOUNDS
from airflow_provider_slshudi.exceptions import TimelineUnreadable
from airflow_provider_slshudi.handover import batch_files, fencing
from airflow_provider_slshudi.hudi.layout import FOLDER, HISTORY, METADATA_FOLDER
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.services.maintenance import archive
from airflow_provider_slshudi.services.metadata import check_metadata, rebuild_metadata
from airflow_provider_slshudi.spark.driver.channel import failure
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from airflow_provider_slshudi.transaction.tables import TransactionTables
from tests.scenarios import Scenario
from tests.transaction.checks import assert_exact
from tests.transaction.quarantined import changed
from tests.transaction.served import batches, served

Make = Callable[..., Scenario]
pytestmark = pytest.mark.long


@contextmanager
def synchronizing(before: Callable[[Storage], object]) -> Iterator[None]:
    """Calls `before` whenever a table's disk is about to be synchronized."""
    original = Storage.sync

    def sync(self: Storage) -> None:
        before(self)
        original(self)

    with patch.object(Storage, "sync", sync):
        yield


def test_a_completion_that_its_driver_did_not_put_on_the_disk_is_there_before_the_ledger_says_committed(
    scenario: Make,
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    prepared = pipeline.prepare_next(10)
    timeline, ledger = Path(pipeline.work.storage.full(FOLDER)), pipeline.work.ledger

    def die(_: Storage) -> None:
        if list(timeline.glob(f"{prepared.instant}_*.commit")):
            raise TimelineUnreadable("the driver is killed", table="")

    with synchronizing(die), pytest.raises(TimelineUnreadable, match="is killed"):
        steps.commit(pipeline.by(prepared.run_id), prepared.id, prepared.token)
    states = list[tuple[str, State]]()
    with synchronizing(lambda of: states.append((of.uri, ledger.get(prepared.id).state))):
        settle(pipeline.by("run-2"), lambda run: True)
    assert ledger.get(prepared.id).state is State.COMMITTED
    assert states == [(pipeline.work.storage.uri, State.PREPARED)]
    assert_exact(pipeline, 20)


def test_files_of_a_quarantine_on_another_disk_are_on_it_before_the_manifest_is(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    pipeline.put(10)
    opened = pipeline.open(pipeline.by("run-1"))
    notes = Path(pipeline.work.storage.full(fencing.folder(str(opened.instant))))
    synchronized = list[tuple[str, list[Path]]]()
    with synchronizing(lambda of: synchronized.append((of.uri, [*notes.glob("manifest-*")]))):
        steps.append(pipeline.by("run-1"), opened.id, opened.token)
    assert (pipeline.work.pipeline.quarantine_path, []) in synchronized


@pytest.mark.parametrize("folder", [FOLDER, f"{METADATA_FOLDER}/{FOLDER}"], ids=["table", "metadata"])
def test_a_rollback_whose_plan_was_cut_off_once_it_had_begun_is_done_anew(scenario: Make, folder: str) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    prepared = pipeline.prepare_next(10)
    work = pipeline.by("run-2")
    TransactionTables.of(work).fence(str(prepared.instant))
    # It had deleted a file.
    (written,) = batch_files.written(work.storage, str(prepared.instant))[""]
    Path(work.storage.full(written)).unlink()
    time = f"{int(str(prepared.instant)) + 1}.rollback"
    begun = [Path(work.storage.full(folder)) / f"{time}.{phase}" for phase in ("requested", "inflight")]
    for file in begun:
        file.touch()
    settle(work, lambda run: True)
    assert not any(file.exists() for file in begun)
    assert pipeline.work.ledger.get(prepared.id).state is State.ABORTED
    pipeline.batch("run-3")
    assert_exact(pipeline, 20)


def test_a_withdrawn_order_does_not_come_back_beside_what_the_rollback_deleted(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    prepared = pipeline.prepare(pipeline.by("run-1"))
    orders = Path(pipeline.work.storage.full(fencing.folder(str(prepared.instant))))
    table = Path(pipeline.work.storage.full(""))
    seen = list[tuple[list[Path], int]]()
    with synchronizing(lambda _: seen.append(([*orders.glob("batch-*")], len([*table.rglob("*.parquet")])))):
        abandon(pipeline.by("person"), prepared.id, "to try")
    assert ([], 1) in seen


def test_a_compaction_of_the_metadata_table_whose_plan_was_cut_off_once_it_had_begun_leaves_no_file(
    scenario: Make,
) -> None:
    pipeline = _compacting(scenario(shards=1))
    _compacted(pipeline, 0)
    _compacted(pipeline, 10)
    metadata = Storage(f"{pipeline.work.storage.uri}/{METADATA_FOLDER}")
    compaction = Timeline.load(metadata).completed("commit")[-1]
    timeline = Path(metadata.full(FOLDER))
    for file in timeline.glob(f"*{compaction.time}*"):
        if file.name.endswith((".crc", ".commit")):
            file.unlink()
    os.truncate(timeline / f"{compaction.time}.compaction.requested", 0)
    written = [Path(metadata.full(path)) for path, _ in metadata.walk() if compaction.time in path]
    assert written
    for number in (20, 30):
        _compacted(pipeline, number)
    assert check_metadata(pipeline.by("check")).ok
    assert not any(file.exists() for file in written)
    assert_exact(pipeline, 40)


def test_an_index_that_is_turned_off_after_a_compaction_is_no_damage(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    bounded = _compacting(pipeline, **{BOUNDS: "true"})
    _compacted(bounded, 0)
    _compacted(bounded, 10)
    assert Timeline.load(Storage(f"{pipeline.work.storage.uri}/{METADATA_FOLDER}")).completed("commit")
    for number in (20, 30):
        pipeline.put(10, first=number)
        pipeline.batch(f"run-{number}")
    assert_exact(pipeline, 40)


def test_a_cut_list_of_an_archive_is_named_with_what_makes_it_anew(scenario: Make) -> None:
    pipeline = served(scenario)
    metadata = Path(pipeline.work.storage.full(METADATA_FOLDER))
    logs = 0
    while not (lists := sorted((metadata / HISTORY).glob("manifest_*"))):
        logs = batches(pipeline, 3, first=logs)
        archive(pipeline.by(f"archive-{logs}"))
        assert logs < 200
    os.truncate(lists[-1], 10)
    with pytest.raises(TimelineUnreadable, match=rf"{METADATA_FOLDER}/{HISTORY}/manifest_\d+, .* cut off") as cut:
        archive(pipeline.by("archive"))
    assert "slshudi table rebuild-metadata" in failure(cut.value).text
    rebuild_metadata(pipeline.by("rebuild"))
    archive(pipeline.by("archive"))
    assert_exact(pipeline, logs)


def _compacting(pipeline: Scenario, **more: str) -> Scenario:
    """The same with a metadata table that each archival compacts."""
    table = pipeline.work.pipeline.model_dump(mode="json")["table"]
    options = {"hoodie.metadata.compact.max.delta.commits": "1", **more}
    return changed(pipeline, table={**table, "options": options})


def _compacted(pipeline: Scenario, first: int) -> None:
    pipeline.put(10, first=first)
    pipeline.batch(f"run-{first}")
    archive(pipeline.by(f"archive-{first}"))
