"""The arithmetic of ranges agrees with sets of integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.planning.ranges import Range, merge, overlap, subtract

some_ranges = st.lists(
    st.builds(
        lambda shard, begin, length, gap: Range(shard, begin, begin + length, gap),
        st.integers(0, 2),
        st.integers(0, 40),
        st.integers(1, 12),
        st.booleans(),
    ),
    max_size=8,
)


def cursors(ranges: Iterable[Range]) -> set[tuple[int, int]]:
    return {(item.shard, cursor) for item in ranges for cursor in range(item.begin, item.end)}


def assert_fewest(ranges: list[Range]) -> None:
    """Sorted, and no two of them could be one."""
    assert ranges == sorted(ranges)
    for left, right in itertools.pairwise(ranges):
        assert left.shard < right.shard or left.end < right.begin


@given(some_ranges)
def test_merge_keeps_the_cursors_in_the_fewest_ranges(ranges: list[Range]) -> None:
    merged = merge(ranges)
    assert cursors(merged) == cursors(ranges)
    assert_fewest(merged)
    assert not any(item.gap for item in merged)


@given(some_ranges, some_ranges)
def test_subtract_is_the_difference_of_sets(wanted: list[Range], taken: list[Range]) -> None:
    left = subtract(wanted, taken)
    assert cursors(left) == cursors(wanted) - cursors(taken)
    assert_fewest(left)


@given(some_ranges, some_ranges)
def test_overlap_is_the_intersection_of_sets(left: list[Range], right: list[Range]) -> None:
    both = overlap(left, right)
    assert cursors(both) == cursors(left) & cursors(right)
    assert_fewest(both)
    assert overlap(right, left) == both


@given(some_ranges, some_ranges)
def test_any_iterable_will_do(left: list[Range], right: list[Range]) -> None:
    assert merge(iter(left)) == merge(left)
    assert subtract(iter(left), iter(right)) == subtract(left, right)
    assert overlap(iter(left), iter(right)) == overlap(left, right)


def test_cursors_of_the_service_s_size_stay_exact() -> None:
    begin = 1614750027373205714
    assert subtract([Range(0, begin, begin + 3)], [Range(0, begin + 1, begin + 2)]) == [
        Range(0, begin, begin + 1),
        Range(0, begin + 2, begin + 3),
    ]


@pytest.mark.parametrize("end", [5, 4])
def test_an_empty_range_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match="shard 3"):
        Range(3, 5, end)


def test_length_and_text() -> None:
    assert len(Range(3, 5, 9)) == 4
    assert str(Range(3, 5, 9)) == "3:[5, 9)"
