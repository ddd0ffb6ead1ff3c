"""How fast a task may read, so that a batch does not run into the service's quotas.

The limits of a shard are shared out beforehand: each of the N tasks that read it gets 1/N, so that tasks on different
machines need not talk. A task that is done early leaves its part unused. A quota error slows its task down further.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_LOWER, _SLOWEST = 0.5, 1 / 64
_RECOVER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one reader may take of a shard in a second, and of all that it reads (None: no such limit)."""

    bytes_per_second: float
    reads_per_second: float
    total_bytes_per_second: float | None = None

    def among(self, readers: int, tasks: int) -> Limits:
        """The part of one of `readers` of a shard, in a batch of `tasks`."""
        total = None if self.total_bytes_per_second is None else self.total_bytes_per_second / tasks
        return Limits(self.bytes_per_second / readers, self.reads_per_second / readers, total)


class Bucket:
    """Tokens that come back at `rate` a second, up to a second's worth; a reader that overdraws waits for them."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens, self._at = rate, now

    def wait(self, now: float, factor: float) -> float:
        """Seconds until nothing is owed, at `factor` of the rate."""
        self._fill(now, factor)
        return max(0.0, -self._tokens / (self.rate * factor))

    def take(self, tokens: float, now: float, factor: float) -> None:
        """Take `tokens`, more than there are if need be."""
        self._fill(now, factor)
        self._tokens -= tokens

    def _fill(self, now: float, factor: float) -> None:
        rate = self.rate * factor
        self._tokens = min(rate, self._tokens + (now - self._at) * rate)
        self._at = now


class Pacer:
    """The pace of one reader of a shard; for several threads.

    A quota error halves the pace, down to 1/64. It recovers evenly, the whole way in a minute without another error.

    Attributes:
        waited: seconds that its readers have waited so far.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        now = clock()
        self._clock, self._sleep, self._lock = clock, sleep, threading.Lock()
        self._reads, self._bytes = Bucket(limits.reads_per_second, now), [Bucket(limits.bytes_per_second, now)]
        if limits.total_bytes_per_second is not None:
            self._bytes.append(Bucket(limits.total_bytes_per_second, now))
        self._lowered, self._lowered_at = 1.0, now
        self.waited = 0.0

    @property
    def factor(self) -> float:
        """The part of its limits that the reader takes at present."""
        return min(1.0, self._lowered + (self._clock() - self._lowered_at) / _RECOVER_SECONDS)

    def before(self) -> None:
        """Wait until one more pull may be sent, and count it."""
        with self._lock:
            factor, now = self.factor, self._clock()
            pause = max(bucket.wait(now, factor) for bucket in (self._reads, *self._bytes))
            self._reads.take(1, now, factor)
            self.waited += pause
        if pause > 0:
            self._sleep(pause)

    def after(self, size: int) -> None:
        """Count the raw bytes of an answer: their number is known only then."""
        with self._lock:
            for bucket in self._bytes:
                bucket.take(size, self._clock(), self.factor)

    def throttled(self) -> None:
        """Halve the pace: the service said that it was too fast."""
        with self._lock:
            self._lowered, self._lowered_at = max(_SLOWEST, self.factor * _LOWER), self._clock()
