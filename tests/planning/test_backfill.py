"""What a backfill reads, and what it refuses."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.planning.batches import plan_backfill
from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.planning.windows import ShardWindow

WINDOWS = [ShardWindow(0, 80, 10, 100), ShardWindow(1, 0, 0, 50)]
DENSITY = {0: Density(1.0, 1.0), 1: Density(1.0, 1.0)}


def plan(wanted: dict[int, tuple[int, int]], taken: list[Range] | None = None, max_bytes: int = 1_000) -> list[Range]:
    return plan_backfill("clicks", wanted, WINDOWS, taken or [], DENSITY, Batch(max_bytes=max_bytes))


def test_only_what_is_missing_is_read() -> None:
    taken = [Range(0, 20, 30), Range(0, 60, 100)]
    assert plan({0: (15, 70), 1: (0, 50)}, taken) == [Range(0, 15, 20), Range(0, 30, 60), Range(1, 0, 50)]


def test_a_backfill_reads_before_the_tail_s_duty() -> None:
    assert plan({0: (10, 80)}) == [Range(0, 10, 80)]


def test_nothing_is_left_of_a_backfill_that_was_done_also_when_its_data_is_gone() -> None:
    assert plan({0: (0, 40)}, [Range(0, 0, 40)]) == []


def test_a_large_backfill_takes_several_batches() -> None:
    taken: list[Range] = []
    batches = []
    while batch := plan({0: (10, 100), 1: (0, 45)}, taken, max_bytes=45):
        batches.append(batch)
        taken += batch
    assert batches[0] == [Range(0, 10, 40), Range(1, 0, 15)]
    assert [sum(map(len, batch)) for batch in batches] == [45, 45, 45]


@pytest.mark.parametrize(
    ("wanted", "field", "reason"),
    [
        ({7: (0, 10)}, "ranges.7", "no shard 7; it has 0, 1"),
        ({0: (20, 20)}, "ranges.0", "not before its end"),
        ({1: (0, 5), 0: (30, 20)}, "ranges.0", "not before its end"),
        ({0: (9, 20)}, "ranges.0", r"\[9, 20\) was never read.* \[10, 100\)"),
        ({0: (90, 101)}, "ranges.0", r"\[90, 101\) was never read"),
        ({}, "ranges", "names no shard"),
    ],
)
def test_a_wrong_request_is_refused_as_a_whole(wanted: dict[int, tuple[int, int]], field: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        plan(wanted)
    assert caught.value.field == field
    assert caught.value.value == (wanted if field == "ranges" else wanted[int(field.removeprefix("ranges."))])
    assert "clicks" in caught.value.source


def test_only_the_missing_part_must_be_held() -> None:
    assert plan({0: (0, 20)}, [Range(0, 0, 10)]) == [Range(0, 10, 20)]
