"""Partitions of event times as spans: when the hour, day or month that a partition's value names begins and ends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

Every = Literal["hour", "day", "month"]
_FORMATS: dict[Every, str] = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m"}


@dataclass(frozen=True, slots=True)
class Period:
    """A partition's value, and its event times [begin, end) in unix seconds."""

    value: str
    begin: int
    end: int


@dataclass(frozen=True)
class Periods:
    """How a table's partitions cut time.

    Attributes:
        every: how long one is.
        timezone: in whose calendar it begins; an IANA name.
    """

    every: Every
    timezone: str = "UTC"

    def of(self, value: str) -> Period | None:
        """The period of a partition's value; None of a value that names none, such as that of rows without a time."""
        try:
            local = datetime.strptime(value, _FORMATS[self.every])
            (begin, _), (end, last) = self._unix(local), self._unix(self._later(local))
        except (ValueError, OverflowError):  # the first and last years that there are have moments outside of them
            return None
        if last > end and self._value(last - 1) == value:
            end = last  # clocks that were set back came to this period again behind the next one
        # An hour that the clocks skip holds no time.
        return Period(value, begin, end) if begin < end else None

    def at(self, unix_seconds: int) -> Period:
        """The period in which a moment lies."""
        period = self.of(self._value(unix_seconds))
        if period is None:
            raise ValueError(f"no {self.every} of {self.timezone} holds {unix_seconds}")
        return period

    def ended(self, since: int, until: int) -> Iterator[Period]:
        """The periods of which a moment since then is a part, and that ended until then, in order."""
        while (period := self.at(since)).end <= until:
            yield period
            since = period.end

    def _value(self, unix_seconds: int) -> str:
        return datetime.fromtimestamp(unix_seconds, ZoneInfo(self.timezone)).strftime(_FORMATS[self.every])

    def _later(self, local: datetime) -> datetime:
        if self.every == "month":
            return local.replace(year=local.year + local.month // 12, month=local.month % 12 + 1)
        return local + (timedelta(hours=1) if self.every == "hour" else timedelta(days=1))

    def _unix(self, local: datetime) -> tuple[int, int]:
        """The first and the last moment at which the clocks show that time, or, where they skip it, a later one."""
        zone = ZoneInfo(self.timezone)
        # Of a time that is skipped, one answer is before the skip and the other behind it.
        early, late = sorted(int(local.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
        if datetime.fromtimestamp(early, zone).replace(tzinfo=None) == local:
            return early, late
        skip = bisect_left(
            range(early, late), local, key=lambda moment: datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
        )
        return early + skip, early + skip
