"""Shards that wait for older ones with the same keys."""

from __future__ import annotations

import random

from airflow_provider_slshudi.planning.shard_order import Keys, waiting
from tests.planning.histories import History

LOW, MIDDLE, HIGH, END = "0" * 32, "8" + "0" * 31, "c" + "0" * 31, "f" * 32


def test_a_split_shard_s_children_wait_until_it_is_finished() -> None:
    children = [Keys(1, LOW, MIDDLE, False), Keys(2, MIDDLE, END, False)]
    assert waiting([Keys(0, LOW, END, False), *children]) == {1, 2}
    assert waiting([Keys(0, LOW, END, True), *children]) == set()


def test_a_merged_shard_waits_for_both() -> None:
    merged = Keys(4, LOW, END, False)
    assert waiting([Keys(0, LOW, MIDDLE, True), Keys(1, MIDDLE, END, False), merged]) == {4}
    assert waiting([Keys(0, LOW, MIDDLE, True), Keys(1, MIDDLE, END, True), merged]) == set()


def test_grandchildren_wait_for_whatever_is_unfinished_above_them() -> None:
    shards = [
        Keys(0, LOW, END, False),
        Keys(1, LOW, MIDDLE, True),
        Keys(2, MIDDLE, END, True),
        Keys(3, LOW, HIGH, True),
    ]
    assert waiting(shards) == {1, 2, 3}


def test_neighbours_do_not_wait_for_one_another() -> None:
    assert waiting([Keys(0, LOW, MIDDLE, False), Keys(1, MIDDLE, END, False)]) == set()


def test_a_shard_whose_keys_are_forgotten_is_older_than_all_that_came_later() -> None:
    assert waiting([Keys(3, "", "", False), Keys(1, LOW, END, False), Keys(4, HIGH, END, False)]) == {3, 4}
    assert waiting([Keys(3, "", "", True), Keys(4, HIGH, END, False)]) == set()


def test_a_shard_whose_keys_are_forgotten_waits_for_no_open_one() -> None:
    forgotten, other_half = Keys(1, "", "", False), Keys(0, LOW, MIDDLE, False, is_open=True)
    assert waiting([other_half, forgotten, Keys(2, MIDDLE, END, False, is_open=True)]) == {2}
    assert waiting([Keys(0, LOW, MIDDLE, False), forgotten]) == {1}, "a closed one is finished some time"


def test_one_walk_finds_what_all_pairs_do() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        shards = []
        for number in range(rng.randrange(1, 12)):
            begin, end = sorted(rng.sample(range(16), 2))
            shards.append(Keys(number, f"{begin:x}" + "0" * 31, f"{end:x}" + "0" * 31, rng.random() < 0.5))
        expected = {
            newer.shard
            for newer in shards
            for older in shards
            if older.shard < newer.shard and not older.finished and older.begin < newer.end and newer.begin < older.end
        }
        assert waiting(rng.sample(shards, len(shards))) == expected


def test_each_key_holds_its_last_put_in_drawn_histories() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    assert [number for number in range(seed, seed + 100) if History(number).run()] == []


def test_histories_find_a_plan_in_which_no_shard_waits() -> None:
    assert any(History(number, ordered=False).run() for number in range(50))
