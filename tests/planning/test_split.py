"""How a batch becomes tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.planning.ranges import Density, Range, merge
from airflow_provider_slshudi.planning.windows import bytes_per_group, estimate, split

BASE = 1614750027373205714
ONE_BYTE = {shard: Density(1.0, 1.0) for shard in range(10)}


def test_a_hot_shard_is_cut_so_that_tasks_end_together() -> None:
    ranges = [Range(0, BASE, BASE + 900), Range(1, 0, 50), Range(2, 0, 50)]
    tasks = split(ranges, ONE_BYTE, tasks=4, target_bytes=1)
    assert tasks == [
        [Range(0, BASE, BASE + 250)],
        [Range(0, BASE + 250, BASE + 500)],
        [Range(0, BASE + 500, BASE + 750)],
        [Range(0, BASE + 750, BASE + 900), Range(1, 0, 50), Range(2, 0, 50)],
    ]


def test_a_small_batch_is_one_task() -> None:
    ranges = [Range(shard, 0, 10) for shard in range(5)]
    assert split(ranges, ONE_BYTE, tasks=8, target_bytes=50) == [ranges]
    assert len(split(ranges, ONE_BYTE, tasks=8, target_bytes=49)) == 2


def test_there_are_no_more_tasks_than_log_groups() -> None:
    assert split([Range(0, 0, 2)], {}, tasks=8, target_bytes=1) == [[Range(0, 0, 1)], [Range(0, 1, 2)]]


def test_bytes_count_not_log_groups() -> None:
    density = {0: Density(9.0, 1.0), 1: Density(1.0, 1.0)}
    tasks = split([Range(0, 0, 10), Range(1, 0, 90)], density, tasks=2, target_bytes=1)
    assert tasks == [[Range(0, 0, 10)], [Range(1, 0, 90)]]


def test_a_log_group_heavier_than_a_task_s_share_is_a_task() -> None:
    tasks = split([Range(0, 0, 1), Range(1, 0, 99)], {0: Density(101.0, 1.0), 1: Density(1.0, 1.0)}, 4, 1)
    assert tasks == [[Range(0, 0, 1)], [Range(1, 0, 33)], [Range(1, 33, 66)], [Range(1, 66, 99)]]


def test_gaps_are_no_work() -> None:
    assert split([Range(0, 0, 5, gap=True), Range(0, 5, 9)], ONE_BYTE, 4, 100) == [[Range(0, 5, 9)]]
    assert split([Range(0, 0, 5, gap=True)], ONE_BYTE, 4, 100) == []
    assert split([], ONE_BYTE, 4, 100) == []


@pytest.mark.parametrize(("tasks", "target"), [(0, 1), (1, 0)])
def test_less_than_one_is_refused(tasks: int, target: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        split([Range(0, 0, 1)], {}, tasks, target)


@given(
    st.lists(st.tuples(st.integers(1, 2_000), st.booleans()), max_size=12),
    st.dictionaries(st.integers(0, 11), st.builds(Density, st.floats(0, 1e7), st.just(1.0))),
    st.integers(1, 40),
    st.integers(1, 10**9),
)
def test_every_cursor_is_in_one_task_and_the_tasks_are_even(
    lengths: list[tuple[int, bool]], density: dict[int, Density], tasks: int, target: int
) -> None:
    ranges = [Range(shard, BASE, BASE + length, gap) for shard, (length, gap) in enumerate(lengths)]
    work = [item for item in ranges if not item.gap]
    parts = split(ranges, density, tasks, target)
    assert parts == split(ranges[::-1], density, tasks, target)
    pieces = [item for part in parts for item in part]
    assert merge(pieces) == work
    assert sum(map(len, pieces)) == sum(map(len, work))
    assert all(parts) and len(parts) <= tasks
    if len(parts) > 1:
        total = estimate(work, density)
        assert total > target, "a small batch was split"
        heaviest = max(bytes_per_group(density, item.shard) for item in work)
        for part in parts:
            assert estimate(part, density) <= total / len(parts) + 1.5 * heaviest
