"""What the quarantine's timeline says of a batch's part in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_slshudi.hudi.beside import is_completed, is_pending, may_complete
from airflow_provider_slshudi.hudi.layout import FOLDER
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage

INSTANT, COMPLETED = "20260101000000001", "20260101000000002"


def timeline_of(base: Path, *names: str) -> Timeline:
    folder = base / FOLDER
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return Timeline.load(Storage(f"file://{base}"))


def test_a_rollback_that_has_the_time_of_a_batchs_instant_is_not_its_part(tmp_path: Path) -> None:
    """Both tables take their times from clocks: a rollback here and an instant there may have the same millisecond."""
    found = timeline_of(tmp_path, f"{INSTANT}.rollback.requested", f"{INSTANT}_{COMPLETED}.rollback")
    assert not is_completed(found, INSTANT)
    assert not is_pending(found, INSTANT)
    assert not may_complete(found, INSTANT)


@pytest.mark.parametrize("other", [[f"{INSTANT}_{COMPLETED}.rollback"], [f"{INSTANT}.clean.requested"]])
def test_a_part_is_seen_beside_a_rollback_or_clean_of_the_same_time(tmp_path: Path, other: list[str]) -> None:
    requested, inflight = f"{INSTANT}.commit.requested", f"{INSTANT}.inflight"
    begun = timeline_of(tmp_path / "begun", requested, inflight, *other)
    ended = timeline_of(tmp_path / "ended", requested, inflight, f"{INSTANT}_{COMPLETED}.commit", *other)
    assert (is_pending(begun, INSTANT), may_complete(begun, INSTANT), is_completed(begun, INSTANT)) == (
        True,
        True,
        False,
    )
    assert (is_pending(ended, INSTANT), is_completed(ended, INSTANT)) == (False, True)


def test_the_part_is_pending_from_its_request_to_its_commit(tmp_path: Path) -> None:
    requested, inflight = f"{INSTANT}.commit.requested", f"{INSTANT}.inflight"
    asked = timeline_of(tmp_path / "asked", requested)
    begun = timeline_of(tmp_path / "begun", requested, inflight)
    ended = timeline_of(tmp_path / "ended", requested, inflight, f"{INSTANT}_{COMPLETED}.commit")
    assert [is_pending(found, INSTANT) for found in (asked, begun, ended)] == [True, True, False]
    assert [may_complete(found, INSTANT) for found in (asked, begun, ended)] == [False, True, False]
    assert [is_completed(found, INSTANT) for found in (asked, begun, ended)] == [False, False, True]
