"""Up to which receive time all is committed: what marks of looks at shards prove, and what they do not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.planning.watermark import MOST_MARKS, Mark, ShardState, kept, watermark


def shard(covered: int, *marks: Mark, end: int | None = None, first: int = 0) -> ShardState:
    """One that is covered from where duty begins up to a cursor."""
    return ShardState(first, end, [Range(0, first, covered)] if covered > first else [], marks)


def test_a_mark_counts_once_all_below_it_is_committed() -> None:
    marks = Mark(10, 100), Mark(20, 200), Mark(30, 300)
    assert watermark([shard(0, *marks)], 300) is None
    assert watermark([shard(19, *marks)], 300) == 100
    assert watermark([shard(20, *marks)], 300) == 200
    assert watermark([shard(35, *marks)], 300) == 300


def test_a_hole_holds_it() -> None:
    marks = Mark(10, 100), Mark(20, 200)
    assert watermark([ShardState(0, None, [Range(0, 0, 10), Range(0, 15, 30)], marks)], 200) == 100
    backfilled = ShardState(5, None, [Range(0, 0, 3), Range(0, 5, 20)], marks)
    assert watermark([backfilled], 200) == 200, "what is below the duty is not awaited"


def test_the_slowest_shard_counts_and_one_without_a_mark_makes_it_unknown() -> None:
    fast, slow = shard(20, Mark(20, 200)), shard(7, Mark(5, 50), Mark(9, 200))
    assert watermark([fast, slow], 200) == 50
    assert watermark([fast, slow, shard(9)], 200) is None
    assert watermark([fast], None) is None


def test_an_idle_shard_holds_nothing_up() -> None:
    idle = shard(0, Mark(0, 100), Mark(0, 900))
    assert watermark([idle, shard(20, Mark(20, 900))], 900) == 900


def test_a_closed_shard_that_is_read_counts_no_more_and_its_children_do() -> None:
    parent = shard(30, Mark(30, 100), end=30)
    assert watermark([parent], 500) == 500
    assert watermark([parent, shard(0), shard(0)], 500) is None
    assert watermark([parent, shard(0, Mark(0, 500)), shard(0, Mark(4, 500))], 500) is None
    assert watermark([parent, shard(0, Mark(0, 500)), shard(4, Mark(4, 500))], 500) == 500
    assert watermark([shard(29, Mark(20, 100), Mark(30, 500), end=30)], 500) == 100


def test_of_a_shard_that_no_list_named_yet_logs_may_be_there_since_the_list() -> None:
    assert watermark([shard(20, Mark(20, 900))], 400) == 400


def test_marks_that_are_kept_are_few_and_the_newest_is_among_them() -> None:
    state = shard(0)
    for number in range(1_000):
        state = state._replace(marks=kept(state, [Mark(number, 10 * number)]))
        assert len(state.marks) <= MOST_MARKS + 1
        assert state.marks[-1] == Mark(number, 10 * number)
    read = state._replace(covered=[Range(0, 0, 999)])
    assert kept(read, []) == [Mark(999, 9_990)]


def test_of_two_marks_at_a_cursor_the_later_time_is_kept() -> None:
    assert kept(shard(0), [Mark(5, 100), Mark(5, 300), Mark(5, 200)]) == [Mark(5, 300)]


@dataclass
class Source:
    """A shard that receives logs at times, and what is known of it."""

    received: list[int] = field(default_factory=list)
    state: ShardState = field(default_factory=lambda: shard(0))
    is_listed: bool = False

    def uncommitted(self) -> int | None:
        """The receive time of the first log that is not committed."""
        read = set().union(*(range(item.begin, item.end) for item in self.state.covered))
        return next((moment for cursor, moment in enumerate(self.received) if cursor not in read), None)


def test_in_drawn_histories_it_never_passes_a_log_and_reaches_the_last_look() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(200):
        _history(random.Random(f"{seed} {number}"))


def _history(rng: random.Random) -> None:
    clock, looked, sources = 1_000, None, [Source()]
    for _ in range(rng.randrange(5, 120)):
        clock += rng.choice((0, 1, 7, 60, 4_000))
        act = rng.choice(("receive", "receive", "look", "look", "commit", "split"))
        open_sources = [source for source in sources if source.state.end is None]
        if act == "receive":
            source = rng.choice(open_sources)
            source.received += [clock] * rng.randrange(1, 5)
        elif act == "split" and len(sources) < 6:
            parent = rng.choice(open_sources)
            parent.state = parent.state._replace(end=len(parent.received))
            sources += [Source(), Source()]
        elif act == "look":
            looked = clock
            for source in sources:
                source.is_listed = True
                marks = [Mark(len(source.received), clock)]
                if (first := source.uncommitted()) is not None and rng.random() < 0.5:
                    marks.append(Mark(source.state.reach, first))
                source.state = source.state._replace(marks=kept(source.state, marks))
        elif act == "commit":
            source = rng.choice(sources)
            if source.is_listed:
                begin = rng.choice((source.state.reach, rng.randrange(len(source.received) + 1)))
                end = rng.randrange(begin, len(source.received) + 1)
                more = [Range(0, begin, end)] if begin < end else []
                source.state = source.state._replace(covered=_covered([*source.state.covered, *more]))
        _check(sources, looked)
    for source in sources:
        source.is_listed = True
        end = len(source.received)
        covered = [Range(0, 0, end)] if end else []
        source.state = source.state._replace(covered=covered, marks=kept(source.state, [Mark(end, clock)]))
    assert watermark([source.state for source in sources], clock) == clock


def _check(sources: list[Source], looked: int | None) -> None:
    mark = watermark([source.state for source in sources if source.is_listed], looked)
    waiting = [moment for source in sources if (moment := source.uncommitted()) is not None]
    assert mark is None or not waiting or mark <= min(waiting)


def _covered(ranges: list[Range]) -> list[Range]:
    cursors = sorted(set().union(*(range(item.begin, item.end) for item in ranges)))
    joined: list[Range] = []
    for cursor in cursors:
        if joined and joined[-1].end == cursor:
            joined[-1] = Range(0, joined[-1].begin, cursor + 1)
        else:
            joined.append(Range(0, cursor, cursor + 1))
    return joined
