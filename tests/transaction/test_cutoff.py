"""A completion that a full disk or a power loss cut off is taken away, and the batch is committed once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_slshudi.exceptions import TableError, TableMismatch
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.layout import FOLDER, HISTORY, METADATA_FOLDER, PROPERTIES
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.transaction import steps
from airflow_provider_slshudi.transaction.settle import settle
from tests.scenarios import Meanwhile, Scenario
from tests.transaction.checks import assert_exact

Make = Callable[..., Scenario]
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class _Lost:
    """What a full disk, or a loss of power, leaves of a completion."""

    pipeline: Scenario
    folder: str
    keep: float

    def cut(self, instant: str) -> Path:
        timeline = Path(self.pipeline.work.storage.full(self.folder))
        (file,) = timeline.glob(f"{instant}_*commit")
        os.truncate(file, int(file.stat().st_size * self.keep))
        # Hadoop would refuse the file by its checksum; what a disk leaves has none.
        (timeline / f".{file.name}.crc").unlink(missing_ok=True)
        return file


def cut_commit(pipeline: Scenario, keep: float, folders: list[str]) -> tuple[str, list[Path]]:
    """A batch whose commit ended in a full disk: completions in `folders` are cut, the ledger has it PREPARED."""
    prepared = pipeline.prepare_next(10)
    files: list[Path] = []

    def fill() -> None:
        files.extend(_Lost(pipeline, folder, keep).cut(str(prepared.instant)) for folder in folders)
        if FOLDER not in folders:
            (completed,) = Path(pipeline.work.storage.full(FOLDER)).glob(f"{prepared.instant}_*.commit")
            completed.unlink()

    work = pipeline.by(prepared.run_id)
    with pytest.raises(TableError):
        steps.commit(
            pipeline.by(prepared.run_id, launcher=Meanwhile(work.launcher, Verb.COMMIT, fill)),
            prepared.id,
            prepared.token,
        )
    assert pipeline.work.ledger.get(prepared.id).state is State.PREPARED
    return prepared.id, files


OF_METADATA = f"{METADATA_FOLDER}/{FOLDER}"


def batch_goes_on(pipeline: Scenario, run: str, rows: int) -> None:
    """The next batch is committed, and the table and its metadata table have `rows` rows and nothing else."""
    pipeline.batch(run)
    assert metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, rows)


@pytest.mark.parametrize("keep", [0, 0.3, 0.99])
@pytest.mark.parametrize("folders", [[FOLDER], [OF_METADATA], [FOLDER, OF_METADATA]], ids=["table", "metadata", "both"])
def test_a_prepared_batch_whose_completion_was_cut_off_is_committed_once(
    scenario: Make, keep: float, folders: list[str]
) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    id_, files = cut_commit(pipeline, keep, folders)
    if OF_METADATA in folders:
        found = metadata.check_metadata(pipeline.by("check")) if FOLDER not in folders else None
        assert found is None or files[-1].name in found.unreadable
    settle(pipeline.by("run-3"), lambda run: True)
    assert pipeline.work.ledger.get(id_).state is State.COMMITTED
    assert not any(file.exists() for file in files)
    pipeline.put(10, first=20)
    batch_goes_on(pipeline, "run-4", 30)


def test_such_a_batch_can_be_given_up(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    id_, _ = cut_commit(pipeline, 0, [FOLDER, OF_METADATA])
    abandon(pipeline.by("person"), id_, "its commit met a full disk")
    batch_goes_on(pipeline, "run-3", 20)


def test_files_of_the_archives_that_did_not_get_their_name_go_with_the_next_archival(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    files = []
    for folder in (HISTORY, f"{METADATA_FOLDER}/{HISTORY}"):
        file = Path(pipeline.work.storage.full(folder)) / "_version_.c42d3aed-112f-4a57-902f-e88e4e5ab7a7"
        file.parent.mkdir(exist_ok=True)
        file.touch()
        files.append(file)
    maintenance.archive(pipeline.by("archive"))
    assert not any(file.exists() for file in files)


@pytest.mark.parametrize("action", ["compaction", "clean"])
def test_a_plan_of_the_metadata_table_that_was_cut_off_is_made_anew(scenario: Make, action: str) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    batch = pipeline.batch("run-1")
    timeline = Path(pipeline.work.storage.full(OF_METADATA))
    plan = timeline / f"{int(str(batch.instant)) + 1}.{action}.requested"
    plan.touch()
    pipeline.put(10, first=10)
    batch_goes_on(pipeline, "run-2", 20)
    assert not plan.exists()


def test_a_metadata_table_without_properties_is_named_and_made_anew(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    pipeline.batch("run-1")
    os.truncate(pipeline.work.storage.full(f"{METADATA_FOLDER}/{PROPERTIES}"), 100)
    with pytest.raises(TableMismatch, match=f"{METADATA_FOLDER}/{PROPERTIES}.*`slshudi table rebuild-metadata"):
        settle(pipeline.by("run-2"), lambda run: True)
    metadata.rebuild_metadata(pipeline.by("person"))
    pipeline.put(10, first=10)
    batch_goes_on(pipeline, "run-3", 20)


def test_files_that_did_not_get_their_name_are_removed(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    batch = pipeline.batch("run-1")
    half = f"{batch.instant}.deltacommit.inflight.44d53b02-fdc0-4e06-afd1-c0f10e07658d"
    timelines = [Path(pipeline.work.storage.full(folder)) for folder in (FOLDER, OF_METADATA)]
    files = [timeline / name for timeline in timelines for name in (half, f".{half}.crc")]
    for file in files:
        file.touch()
    pipeline.put(10, first=10)
    batch_goes_on(pipeline, "run-2", 20)
    assert not any(file.exists() for file in files)


def test_a_completion_that_the_ledger_has_as_committed_is_named_and_stays(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    pipeline.put(10)
    committed = pipeline.batch("run-1")
    file = _Lost(pipeline, FOLDER, 0.5).cut(str(committed.instant))
    with pytest.raises(TableMismatch, match=file.name):
        settle(pipeline.by("run-2"), lambda run: True)
    assert file.exists()
