"""A reader's pace, on a clock of the scenario's own."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.sls.pace import Limits, Pacer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def pacer_of(limits: Limits) -> tuple[Pacer, Clock]:
    clock = Clock()
    return Pacer(limits, clock, clock.sleep), clock


def read(pacer: Pacer, clock: Clock, pulls: int, size: int) -> float:
    """Seconds that so many pulls take."""
    started = clock.now
    for _ in range(pulls):
        pacer.before()
        pacer.after(size)
    return clock.now - started


def test_bytes_are_kept_to_their_rate() -> None:
    pacer, clock = pacer_of(Limits(10e6, 1e6))
    seconds = read(pacer, clock, 101, 5_000_000)
    assert seconds == pytest.approx(101 * 0.5, abs=1.6)
    assert pacer.waited == pytest.approx(seconds), "nothing else takes time on this clock"


def test_reads_are_kept_to_their_rate() -> None:
    pacer, clock = pacer_of(Limits(1e12, 100.0))
    assert read(pacer, clock, 5000, 1) == pytest.approx(50, abs=1.1)


def test_all_shards_together_are_kept_to_the_total() -> None:
    pacer, clock = pacer_of(Limits(10e6, 1e6, 1e6))
    assert read(pacer, clock, 50, 1_000_000) == pytest.approx(50, abs=2.1)


def test_what_was_not_used_is_saved_for_a_second_at_most() -> None:
    pacer, clock = pacer_of(Limits(10e6, 100.0))
    clock.sleep(3600)
    assert read(pacer, clock, 200, 1) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("readers", [1, 2, 7])
def test_the_readers_of_a_shard_take_together_what_one_would(readers: int) -> None:
    limits = Limits(10e6, 100.0, 20e6)
    elapsed = []
    for _ in range(readers):
        pacer, clock = pacer_of(limits.among(readers, tasks=readers))
        elapsed.append(read(pacer, clock, 100, 5_000_000))
    assert readers * 100 * 5_000_000 / max(elapsed) == pytest.approx(10e6, rel=0.06)


def test_quota_errors_lower_the_pace_and_it_comes_back() -> None:
    pacer, clock = pacer_of(Limits(10e6, 100.0))
    for factor in (0.5, 0.25, 0.125):
        pacer.throttled()
        assert pacer.factor == factor
    clock.sleep(15)
    assert pacer.factor == 0.375
    clock.sleep(60)
    assert pacer.factor == 1.0
    for _ in range(50):
        pacer.throttled()
    assert pacer.factor == 1 / 64, "never nothing"
    read(pacer, clock, 1, 1)
    before = clock.now
    read(pacer, clock, 20, 1_000_000)
    assert clock.now - before > 5
