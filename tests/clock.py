"""A clock for those who wait, which goes on only while they sleep."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Stands in for the module `time`; `meanwhile` is called after each pause, with the seconds since its start."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[float], None] = lambda now: None

    def monotonic(self) -> float:
        """Seconds since its start."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Goes on."""
        self.now += seconds
        self.pauses.append(seconds)
        self.meanwhile(self.now)
