"""What the next batch of a pipeline reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_slshudi.config.pipeline import Batch
from airflow_provider_slshudi.exceptions import DataExpired, PipelineConflict, TerminalError
from airflow_provider_slshudi.hudi.instant_metadata import ranges_text
from airflow_provider_slshudi.planning.batches import plan_tail
from airflow_provider_slshudi.planning.ranges import Density, Range, merge, overlap, subtract
from airflow_provider_slshudi.planning.windows import (
    DEFAULT_BYTES_PER_GROUP,
    MOST_RANGES,
    ShardWindow,
    estimate,
    refuse_other_shards,
)

BASE = 1614750027373205714
ONE_BYTE = {shard: Density(1.0, 1.0) for shard in range(10)}


def limits(max_bytes: int) -> Batch:
    return Batch(max_bytes=max_bytes)


def window(shard: int, begin: int, end: int, duty: int | None = None) -> ShardWindow:
    return ShardWindow(shard, begin if duty is None else duty, begin, end)


def test_everything_that_nobody_took_when_it_fits() -> None:
    windows = [window(1, BASE, BASE + 10), window(0, BASE, BASE + 5), window(2, 7, 7)]
    assert plan_tail("p", windows, [Range(1, BASE, BASE + 4)], ONE_BYTE, limits(100), "fail") == [
        Range(0, BASE, BASE + 5),
        Range(1, BASE + 4, BASE + 10),
    ]


def test_nothing_new_is_an_empty_batch() -> None:
    assert plan_tail("p", [window(0, 3, 10)], [Range(0, 3, 10)], {}, limits(100), "fail") == []
    assert plan_tail("p", [], [], {}, limits(100), "fail") == []


def test_duty_begins_where_the_pipeline_first_saw_the_shard() -> None:
    assert plan_tail("p", [window(0, 0, 10, duty=6)], [], ONE_BYTE, limits(100), "fail") == [Range(0, 6, 10)]


def test_a_hot_shard_gets_its_share_and_nobody_waits_for_ever() -> None:
    windows = [window(0, 0, 9_000), window(1, 0, 900), window(2, 0, 1)]
    batch = plan_tail("p", windows, [], ONE_BYTE, limits(990), "fail")
    assert [item.begin for item in batch] == [0, 0, 0]
    assert [len(item) for item in batch] == [899, 89, 1]


def test_shares_are_of_bytes_not_of_log_groups() -> None:
    density = {0: Density(100.0, 1.0), 1: Density(1.0, 1.0)}
    batch = plan_tail("p", [window(0, 0, 100), window(1, 0, 100)], [], density, limits(5_050), "fail")
    assert [len(item) for item in batch] == [50, 50]
    assert estimate(batch, density) == 5_050


def test_a_shard_of_unknown_density_counts_64_kib_a_group() -> None:
    batch = plan_tail("p", [window(0, 0, 100)], [], {}, limits(10 * DEFAULT_BYTES_PER_GROUP), "fail")
    assert batch == [Range(0, 0, 10)]


def test_a_shard_that_gave_no_bytes_is_not_free() -> None:
    batch = plan_tail("p", [window(0, 0, 10**9)], [], {0: Density(0.0, 0.0)}, limits(1_000), "fail")
    assert batch == [Range(0, 0, 1_000)]


def test_a_batch_begins_before_a_backfill_s_hole_and_goes_on_behind_it() -> None:
    batch = plan_tail("p", [window(0, 0, 100)], [Range(0, 10, 20)], ONE_BYTE, limits(30), "fail")
    assert batch == [Range(0, 0, 10), Range(0, 20, 40)]


def test_expired_data_fails_and_names_what_is_lost() -> None:
    windows = [window(0, 50, 60, duty=10), window(3, 5, 9, duty=1)]
    with pytest.raises(DataExpired) as caught:
        plan_tail("clicks", windows, [Range(0, 10, 20)], ONE_BYTE, limits(100), "fail")
    error = caught.value
    assert (error.pipeline, error.shard, error.begin, error.end) == ("clicks", 0, 20, 50)
    assert isinstance(error, TerminalError)
    assert [(other.shard, other.begin, other.end) for other in error.others] == [(3, 1, 5)]
    for said in ("shard 0 no longer holds the log groups [20, 50), which were never read: 30 of them", "shard 3"):
        assert said in str(error)
    assert "Together these are 34 log groups of 2 shards" in str(error)


def test_shards_of_which_logs_are_lost_in_different_ways_are_all_named() -> None:
    windows = [
        window(0, 50, 60, duty=10),
        ShardWindow(1, 10, 30, 30, open_end=True),
        ShardWindow(2, 7, 7, 9, open_begin=True),
    ]
    with pytest.raises(DataExpired) as caught:
        plan_tail("clicks", windows, [Range(1, 10, 30)], ONE_BYTE, limits(100), "fail")
    losses = [caught.value, *caught.value.others]
    assert [(loss.shard, loss.more, loss.unseen) for loss in losses] == [
        (0, False, False),
        (1, True, False),
        (2, False, True),
    ]


def test_of_very_many_losses_the_first_are_named_and_all_are_counted() -> None:
    with pytest.raises(DataExpired, match=r"and 80 more losses.* 4,000 log groups of 100 shards"):
        plan_tail("p", [window(shard, 50, 60, duty=10) for shard in range(100)], [], ONE_BYTE, limits(5), "fail")


def test_expired_data_is_recorded_as_a_gap_where_the_pipeline_says_so() -> None:
    taken = [Range(0, 10, 20), Range(0, 30, 40)]
    assert plan_tail("p", [window(0, 50, 60, duty=10)], taken, ONE_BYTE, limits(5), "skip") == [
        Range(0, 20, 30, gap=True),
        Range(0, 40, 50, gap=True),
        Range(0, 50, 55),
    ]


def test_a_shard_that_holds_nothing_any_more_is_one_gap() -> None:
    batch = plan_tail("p", [window(0, 50, 50, duty=10)], [], ONE_BYTE, limits(5), "skip")
    assert batch == [Range(0, 10, 50, gap=True)]


def test_what_expired_before_the_duty_or_after_it_was_read_is_no_loss() -> None:
    windows = [window(0, 50, 60, duty=55), window(1, 50, 60, duty=0)]
    batch = plan_tail("p", windows, [Range(1, 0, 50)], ONE_BYTE, limits(100), "fail")
    assert batch == [Range(0, 55, 60), Range(1, 50, 60)]


@pytest.mark.parametrize("taken", [[Range(0, 0, 100)], []])
def test_a_logstore_that_counts_from_elsewhere_stops_the_pipeline(taken: list[Range]) -> None:
    with pytest.raises(PipelineConflict, match=r"shard 0 ends at cursor 40.* up to 100") as caught:
        refuse_other_shards("p", [(0, 0 if taken else 100, 40)], taken)
    assert caught.value.pipeline == "p"
    refuse_other_shards("p", [(0, 0, 100)], taken)


def test_a_shard_that_is_gone_and_was_open_is_a_loss_whose_end_nobody_knows() -> None:
    gone = [ShardWindow(0, 10, 30, 30, open_end=True), window(1, 0, 5)]
    for taken, begin in (([Range(0, 10, 20)], 20), ([Range(0, 10, 30)], 30)):
        with pytest.raises(DataExpired, match="still open") as caught:
            plan_tail("p", gone, taken, ONE_BYTE, limits(100), "fail")
        assert (caught.value.shard, caught.value.begin, caught.value.end, caught.value.more) == (0, begin, 30, True)
    assert plan_tail("p", gone, [Range(0, 10, 20)], ONE_BYTE, limits(100), "skip") == [
        Range(0, 20, 30, gap=True),
        Range(1, 0, 5),
    ]


def test_more_shards_than_a_batch_takes_have_turns() -> None:
    shards = MOST_RANGES + 3
    windows = [window(shard, 0, 10) for shard in range(shards)]

    def batch(taken: list[Range], last: int | None) -> list[Range]:
        return plan_tail("p", windows, taken, {}, Batch(), "fail", lambda: last)

    first = batch([], None)
    assert [item.shard for item in first] == list(range(MOST_RANGES))
    second = batch([], first[-1].shard)  # the first was aborted, say: those that waited come first
    waited = list(range(MOST_RANGES, shards))
    assert [item.shard for item in second] == [*range(MOST_RANGES - 3), *waited]
    assert [item.shard for item in batch(first, first[-1].shard)] == waited


def test_holes_of_one_shard_are_bounded_like_shards() -> None:
    taken = [Range(0, cursor, cursor + 1) for cursor in range(1, 4 * MOST_RANGES, 2)]
    batch = plan_tail("p", [window(0, 0, 4 * MOST_RANGES)], taken, ONE_BYTE, limits(10**9), "fail")
    assert batch == [Range(0, cursor, cursor + 1) for cursor in range(0, 2 * MOST_RANGES, 2)]


def test_the_longest_text_of_a_batch_s_ranges_stays_below_its_bound() -> None:
    largest = 2**63 - 1
    ranges = [Range(99_999 - number, largest - 1, largest) for number in range(MOST_RANGES)]
    text = ranges_text((item, 10**10, 10**13, 0) for item in ranges)
    assert len(text) <= 80 * MOST_RANGES


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[ShardWindow], list[Range], dict[int, Density], int]:
    windows, taken = [], []
    for shard in range(draw(st.integers(1, 4))):
        duty, begin, length = draw(st.integers(0, 30)), draw(st.integers(0, 60)), draw(st.integers(0, 60))
        end = max(begin + length, duty)
        windows.append(ShardWindow(shard, duty, min(begin, end), end))
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(0, max(0, end - 1)))
            if start < end:
                taken.append(Range(shard, start, draw(st.integers(start + 1, end))))
    density = draw(st.dictionaries(st.integers(0, 3), st.builds(Density, st.floats(0, 1e6), st.just(1.0))))
    return windows, taken, density, draw(st.integers(1, 10_000_000))


@given(situations())
def test_any_batch_is_new_contiguous_and_within_its_limit(
    situation: tuple[list[ShardWindow], list[Range], dict[int, Density], int],
) -> None:
    windows, taken, density, max_bytes = situation
    batch = plan_tail("p", windows, taken, density, limits(max_bytes), "skip")
    assert batch == sorted(batch)
    assert sum(map(len, batch)) == sum(map(len, merge(batch))), "a cursor is there twice"
    assert overlap(batch, taken) == []
    read = [item for item in batch if not item.gap]
    largest = sum(estimate([Range(item.shard, 0, 1)], density) for item in windows)
    assert estimate(read, density) <= max_bytes + largest
    for facts in windows:
        if facts.duty_begin < facts.service_end:
            due = subtract([Range(facts.shard, facts.duty_begin, facts.service_end)], taken)
            mine = [item for item in batch if item.shard == facts.shard]
            assert bool(due) == bool(mine), "a shard with a backlog waits"
            if mine:
                skipped = subtract([Range(facts.shard, due[0].begin, mine[-1].end)], [*mine, *taken])
                assert skipped == [], "a cursor before the batch's end was left out"
        for item in batch:
            if item.shard == facts.shard:
                assert item.end <= facts.service_begin if item.gap else item.begin >= facts.service_begin


def test_batch_after_batch_reads_everything_once() -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    ends, rounds = dict.fromkeys(range(3), 1), 0
    taken: list[Range] = []
    while rounds < 1_000:
        if rounds < 20:
            ends = {shard: end + dice.randint(0, 500) for shard, end in ends.items()}
        windows = [window(shard, 0, end) for shard, end in ends.items()]
        batch = plan_tail("p", windows, taken, ONE_BYTE, limits(300), "fail")
        if not batch and rounds >= 20:
            break
        assert overlap(batch, taken) == []
        taken = merge([*taken, *batch])
        assert len({item.shard for item in taken}) == len(taken), "coverage is one interval per shard"
        rounds += 1
    assert taken == [Range(shard, 0, end) for shard, end in ends.items()]
