"""What a look at the shards says: what is unread, and what came since the look before."""

from __future__ import annotations

from airflow_provider_slshudi.planning.ranges import Density, Range
from airflow_provider_slshudi.transaction.backlog import Seen, backlog, first_unread

DENSITY = {0: Density(100.0, 10.0), 1: Density(1_000.0, 10.0)}


def test_the_first_look_knows_what_is_unread_and_not_what_came() -> None:
    found = backlog([Seen(0, 0, 50, None), Seen(1, 10, 20, None)], [Range(0, 0, 30)], DENSITY)
    assert found.unread == [Range(0, 30, 50), Range(1, 10, 20)]
    assert (found.unread_bytes, found.came, found.came_bytes) == (20 * 100 + 10 * 1_000, None, None)


def test_what_came_is_counted_from_the_look_before_and_of_new_shards_from_their_begin() -> None:
    found = backlog([Seen(0, 0, 50, 40), Seen(1, 10, 20, None)], [Range(0, 0, 50)], DENSITY)
    assert (found.came, found.came_bytes) == (10 + 10, 10 * 100 + 10 * 1_000)


def test_sizes_are_not_known_before_a_batch_has_shown_them() -> None:
    found = backlog([Seen(0, 0, 50, 40)], [], {})
    assert (found.unread_bytes, found.came, found.came_bytes) == (None, 10, None)
    nothing = backlog([Seen(0, 0, 50, 50)], [Range(0, 0, 50)], {})
    assert (nothing.unread_bytes, nothing.came, nothing.came_bytes) == (0, 0, 0)


def test_what_is_covered_below_the_duty_does_not_count() -> None:
    found = backlog([Seen(0, 20, 50, 50)], [Range(0, 5, 25), Range(0, 30, 60)], DENSITY)
    assert found.unread == [Range(0, 25, 30)]


def test_the_first_unread_cursor_of_each_shard() -> None:
    assert first_unread([Range(0, 25, 30), Range(0, 40, 50), Range(2, 7, 9)]) == {0: 25, 2: 7}
