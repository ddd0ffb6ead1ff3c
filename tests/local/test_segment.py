"""What the disk keeps: whole records survive anything that ends a write early."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest
from aliyun.log.log_logs_raw_pb2 import LogGroupListRaw

from airflow_provider_slshudi.local.shardlog import ShardLog
from tests.local.sdk import log_group

GROUPS = [log_group(b"%d" % number * (number + 1)).SerializeToString() for number in range(5)]


def written(directory: Path, first: int = 1000) -> Path:
    log = ShardLog.create(directory, first)
    for group in GROUPS:
        log.append(group)
    log.close()
    return next(directory.iterdir())


def groups_of(log: ShardLog) -> list[bytes]:
    body, count = log.read(log.first, log.end, 1 << 30)
    groups = [group.SerializeToString() for group in LogGroupListRaw.FromString(bytes(body)).LogGroups]
    assert len(groups) == count == log.end - log.first
    return groups


def test_reopening_keeps_cursors_groups_and_times(tmp_path: Path) -> None:
    written(tmp_path / "0", first=12345678901234567)
    log = ShardLog.open(tmp_path / "0")
    assert (log.first, log.end) == (12345678901234567, 12345678901234572)
    assert groups_of(log) == GROUPS
    assert abs(log.time(log.first) - time.time()) < 60
    assert log.append(GROUPS[0]) == 12345678901234572
    assert groups_of(log) == [*GROUPS, GROUPS[0]]


def test_a_write_torn_anywhere_costs_only_its_own_record(tmp_path: Path) -> None:
    path = written(tmp_path / "0")
    whole = path.read_bytes()
    four = len(whole) - len(GROUPS[4]) - 18  # a head of 16 bytes, a tag and a length of one byte
    for length in range(four, len(whole)):
        path.write_bytes(whole[:length])
        log = ShardLog.open(path.parent)
        assert groups_of(log) == GROUPS[:4]
        assert path.stat().st_size == four
        log.append(GROUPS[0])
        log.close()
        log = ShardLog.open(path.parent)
        assert groups_of(log) == [*GROUPS[:4], GROUPS[0]]
        log.close()


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
        log = ShardLog.open(path.parent)
        assert groups_of(log) == GROUPS[:4], place
        log.close()


def test_a_full_disk_fails_the_put_and_leaves_the_rest_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "0")
    log = ShardLog.open(path.parent)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(OSError):
            log.append(GROUPS[4])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert groups_of(log) == GROUPS
    log.append(GROUPS[1])
    log.close()
    assert groups_of(ShardLog.open(path.parent)) == [*GROUPS, GROUPS[1]]


def test_a_clock_set_back_does_not_unsort_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ShardLog.create(tmp_path / "0", 0)
    for seconds in (100, 200, 150, 300):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: float(seconds))
        log.append(GROUPS[0])
    assert [log.time(cursor) for cursor in range(4)] == [100, 200, 200, 300]
    assert [log.at(seconds) for seconds in (0, 100, 101, 200, 201, 300, 301)] == [0, 0, 1, 1, 3, 3, 4]


def test_groups_in_several_files_read_as_one_log_and_expire_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ShardLog.create(tmp_path / "0", 50).close()
    log = ShardLog.open(tmp_path / "0", segment_bytes=100)
    for seconds in range(100, 140):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: float(seconds))
        log.append(log_group(b"%d" % seconds).SerializeToString())
    files = len(list((tmp_path / "0").iterdir()))
    assert files > 5

    def values(log: ShardLog) -> list[int]:
        found, cursor = [], log.first
        while cursor < log.end:
            body, count = log.read(cursor, log.end, 1 << 30)
            groups = LogGroupListRaw.FromString(bytes(body)).LogGroups
            assert len(groups) == count > 0
            found += [int(group.Logs[0].Contents[0].Value) for group in groups]
            cursor += count
        return found

    assert values(log) == list(range(100, 140))
    assert [log.at(seconds) for seconds in (0, 100, 117, 139, 140)] == [50, 50, 67, 89, 90]
    log.expire(113)
    assert (log.first, log.end, values(log)) == (63, 90, list(range(113, 140)))
    assert [log.at(0), log.at(120), log.time(63)] == [63, 70, 113]
    assert len(list((tmp_path / "0").iterdir())) < files
    log.close()
    log = ShardLog.open(tmp_path / "0", segment_bytes=100)
    log.expire(113)
    assert (log.first, log.end, values(log)) == (63, 90, list(range(113, 140)))
    log.expire(1000)
    assert (log.first, log.end, values(log)) == (90, 90, [])
    assert log.append(GROUPS[0]) == 90
    assert log.end == 91
