"""Changes of version that are cut off while Hudi moves the timeline: each is put back, and made whole by the next."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from airflow_provider_slshudi.exceptions import JobFailed, TableError, TimelineUnreadable
from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.hudi import moving
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, METADATA_FOLDER, MOVING, PROPERTIES
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.services import maintenance, metadata
from airflow_provider_slshudi.services.rewrite import cluster
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.services.version import change, versions
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from tests.scenarios import DyingLauncher, Scenario
from tests.transaction.checks import assert_exact
from tests.transaction.quarantined import assert_each_once, of_version, rows_of
from tests.transaction.served import batches, served

Make = Callable[..., Scenario]
ASIDE = f"{ROOT}/timeline/"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archival does not wait for a moment between two batches."""
    monkeypatch.setattr(maintenance, "_LOOKS", 0)


def scatter(storage: Storage, seed: int) -> None:
    """Of a moved timeline: some files are where they were, some are where they go, some are at both places."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    kept = [path.removeprefix(ASIDE) for path in storage.files(ASIDE.rstrip("/"))]
    gone = [path for path in moving.files(storage) if path not in kept]
    assert len(kept) > 20 and len(gone) > 10
    for path in chance.sample(gone, len(gone) // 2):
        storage.delete(path)
    for path in {PROPERTIES, *chance.sample(kept, len(kept) // 2)}:
        storage.write(path, storage.read(f"{ASIDE}{path}") or b"", via=ROOT)


@pytest.mark.parametrize(("first", "to"), [(6, 9), (9, 6)])
def test_a_timeline_that_was_moved_in_part_is_put_back_and_then_moved(scenario: Make, first: int, to: int) -> None:
    pipeline = of_version(served(scenario), first)
    batches(pipeline, 3)
    assert cluster(pipeline.by("cluster")).files
    batches(pipeline, 3, first=30)
    assert maintenance.clean(pipeline.by("clean")).files
    assert maintenance.archive(pipeline.by("archive")).instants
    storage = pipeline.work.storage
    before = moving.completed(storage)
    pipeline = of_version(pipeline, to)
    with pytest.raises(JobFailed):
        change(pipeline.by("change", launcher=DyingLauncher(Point.VERSION_CHANGED)), to)
    scatter(storage, random.randrange(1 << 32))
    pipeline.put(10, first=60)
    for act in (lambda: pipeline.batch("run-7"), lambda: rebuild(pipeline.by("rebuild")), pipeline.work.timeline):
        with pytest.raises(TimelineUnreadable, match=r"a change was cut off.*run it again"):
            act()
    change(pipeline.by("change"), to)
    assert list(versions(pipeline.work).values()) == [str(to)]
    assert moving.completed(storage) >= before
    pipeline.batch("run-7")
    assert metadata.check_metadata(pipeline.by("check")).ok and verify(pipeline.work, True).ok
    assert sorted(row["event_id"] for row in rows_of(storage.uri)) == sorted(f"event-{number}" for number in range(70))
    assert not storage.exists(MOVING) and not storage.exists(ASIDE.rstrip("/"))


def test_a_quarantine_that_was_moved_in_part_is_put_back_too(scenario: Make) -> None:
    pipeline = scenario(shards=1, misfits="quarantine")
    batches(pipeline, 2)
    change(pipeline.by("change"), 6)
    aside = maintenance.beside_of(pipeline.work)["quarantine"]
    moving.begin(aside.storage)
    [*_, last] = sorted(name for name in aside.storage.names(LAYOUT_1.folder) or [] if name.endswith(".commit"))
    aside.storage.delete(f"{LAYOUT_1.folder}/{last}")
    with pytest.raises(TimelineUnreadable, match="a change was cut off"):
        batches(pipeline, 1, first=20)
    change(pipeline.by("change"), 8)
    assert list(versions(pipeline.work).values()) == ["8", "8"]
    pipeline.batch("run-again")
    assert verify(pipeline.work, True).ok
    assert_each_once(pipeline, 30, 3)


def test_a_move_that_lost_a_change_does_not_end(scenario: Make) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    storage = pipeline.work.storage
    before = moving.completed(storage)
    moving.begin(storage)
    with pytest.raises(TableError, match="without 1 of its instants, of 20200101000000000 commit first"):
        moving.end(storage, {*before, ("20200101000000000", "commit")})
    assert moving.is_cut_off(storage)
    moving.end(storage, before)
    assert not moving.is_cut_off(storage) and any(Timeline.load(storage))


def test_nothing_is_deleted_unless_all_that_was_kept_is_there(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = scenario(shards=1)
    batches(pipeline, 1)
    storage = pipeline.work.storage
    moving.begin(storage)
    before = {path: storage.read(path) for path in storage.files(".hoodie") if not path.startswith(ASIDE)}
    storage.delete(f"{ASIDE}{PROPERTIES}")
    with pytest.raises(TableError, match=r"what was kept of the timeline before .*hoodie.properties is not there"):
        change(pipeline.by("change"), 8)
    left = {path: storage.read(path) for path in storage.files(".hoodie") if not path.startswith(ASIDE)}
    assert left.items() >= {path: content for path, content in before.items() if "claim" not in path}.items()
    assert moving.is_cut_off(storage)

    storage.delete(MOVING)
    write = Storage.write

    def denied(self: Storage, path: str, content: bytes, via: str | None = None) -> None:
        write(self, path, content, via)
        if path == MOVING:
            raise TimelineUnreadable("it is there, and the answer was lost", table=self.uri)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "write", denied)
        with pytest.raises(TimelineUnreadable, match="the answer was lost"):
            moving.begin(storage)
    assert not moving.is_cut_off(storage) and not storage.exists(ASIDE.rstrip("/"))
    batches(pipeline, 1, first=10)


def test_a_metadata_table_that_went_with_a_cut_off_change_is_made_anew_by_the_next(scenario: Make) -> None:
    """As where the process is killed after it put the timeline back, and before it made the metadata table anew."""
    pipeline = scenario(shards=1)
    batches(pipeline, 2)
    storage = pipeline.work.storage
    storage.delete_folder(METADATA_FOLDER)
    change(pipeline.by("change"), 8)
    assert storage.exists(METADATA_FOLDER) and metadata.check_metadata(pipeline.by("check")).ok
    assert_exact(pipeline, 20)


def test_a_table_whose_properties_name_no_version_is_not_taken_for_an_empty_one(scenario: Make) -> None:
    pipeline = of_version(scenario(shards=1), 6)
    batches(pipeline, 1)
    storage = pipeline.work.storage
    storage.make_folder(LAYOUT_2.folder)
    storage.write(PROPERTIES, b"hoodie.table.name=ad_events\n")
    with pytest.raises(TimelineUnreadable, match="names version none"):
        Timeline.load(storage)
