"""Waiting for a state, however slow the machine is, and saying what was waited for."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Seen = TypeVar("Seen")

LONGEST_SECONDS = 240.0
"""On two cores that other work shares, what takes a second alone has taken half a minute."""
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.25
_SHARE = 20
"""A pause is this part of the wait until then: a look takes CPU from what is waited for."""


def until(
    what: str,
    seen: Callable[[], Seen],
    seconds: float = LONGEST_SECONDS,
    explain: Callable[[], object] = str,
) -> Seen:
    """The first answer of `seen` that counts as true; fails with `what` and the explanation when there is none."""
    began = time.monotonic()
    while not (answer := seen()):
        waited = time.monotonic() - began
        if waited > seconds:
            pytest.fail(f"not within {seconds:.0f} s: {what}; {explain()}")
        time.sleep(min(max(_PAUSE_SECONDS, waited / _SHARE), _LONGEST_PAUSE_SECONDS))
    return answer


class TimeOver(BaseException):
    """No `Exception`, as Airflow's own."""


def ends_with_its_time(act: Callable[[], object]) -> None:
    """Fails unless an act that waits ends soon after a signal's handler raises, as the end of a task's time does."""

    def over(*_: object) -> None:
        raise TimeOver

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(TimeOver):
            act()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 30
