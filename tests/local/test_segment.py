"""What the disk keeps: whole records survive anything that ends a write early."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.local.segment import Segment
from tests.local.sdk import log_group

GROUPS = [log_group(b"%d" % number * (number + 1)).SerializeToString() for number in range(5)]


def written(directory: Path, first: int = 1000) -> Path:
    segment = Segment.create(directory, first)
    for group in GROUPS:
        segment.append(group)
    segment.close()
    return next(directory.iterdir())


def groups_of(segment: Segment) -> list[bytes]:
    body, count = segment.read(segment.first, segment.end, 1 << 30)
    groups = [group.SerializeToString() for group in LogGroupListRaw.FromString(body).LogGroups]
    assert len(groups) == count == segment.end - segment.first
    return groups


def test_reopening_keeps_cursors_groups_and_times(tmp_path: Path) -> None:
    written(tmp_path / "0", first=12345678901234567)
    segment = Segment.open(tmp_path / "0")
    assert (segment.first, segment.end) == (12345678901234567, 12345678901234572)
    assert groups_of(segment) == GROUPS
    assert abs(segment.time(segment.first) - time.time()) < 60
    assert segment.append(GROUPS[0]) == 12345678901234572
    assert groups_of(segment) == [*GROUPS, GROUPS[0]]


def test_a_write_torn_anywhere_costs_only_its_own_record(tmp_path: Path) -> None:
    path = written(tmp_path / "0")
    whole = path.read_bytes()
    four = len(whole) - len(GROUPS[4]) - 18  # a head of 16 bytes, a tag and a length of one byte
    for length in range(four, len(whole)):
        path.write_bytes(whole[:length])
        segment = Segment.open(path.parent)
        assert groups_of(segment) == GROUPS[:4]
        assert path.stat().st_size == four
        segment.append(GROUPS[0])
        segment.close()
        segment = Segment.open(path.parent)
        assert groups_of(segment) == [*GROUPS[:4], GROUPS[0]]
        segment.close()


def test_a_last_record_with_any_byte_changed_is_not_believed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = written(tmp_path / "0")
    whole = path.read_bytes()
    for place in range(len(whole) - len(GROUPS[4]) - 18, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        segment = Segment.open(path.parent)
        assert groups_of(segment) == GROUPS[:4], place
        segment.close()


def test_a_full_disk_fails_the_put_and_leaves_the_rest_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "0")
    segment = Segment.open(path.parent)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(OSError):
            segment.append(GROUPS[4])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert groups_of(segment) == GROUPS
    segment.append(GROUPS[1])
    segment.close()
    assert groups_of(Segment.open(path.parent)) == [*GROUPS, GROUPS[1]]


def test_a_clock_set_back_does_not_unsort_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = Segment.create(tmp_path / "0", 0)
    for seconds in (100, 200, 150, 300):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: float(seconds))
        segment.append(GROUPS[0])
    assert [segment.time(cursor) for cursor in range(4)] == [100, 200, 200, 300]
    assert [segment.at(seconds) for seconds in (0, 100, 101, 200, 201, 300, 301)] == [0, 0, 1, 1, 3, 3, 4]
