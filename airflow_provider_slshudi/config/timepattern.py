"""How a time is written in a log, in Spark's letters (spark.apache.org/docs/3.5.9/sql-ref-datetime-pattern.html).

Only parts that can be read exactly for whole columns at once: numbers, English names of months and weekdays, AM and PM,
offsets, and names of zones, which mean what the column's own zone or UTC calls so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

COUNTS = {"seconds": 6, "millis": 3, "micros": 0, "nanos": -3}
"""The units of counts since 1970: how many digits of one are microseconds."""
FORMATS = (*COUNTS, "iso8601")
"""The formats of a timestamp besides patterns: a count since 1970, or ISO 8601."""

_HOURS = "(?:0[0-9]|1[0-7])"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_PARTS = {
    "yyyy": ("year", "[0-9]{4}"),
    "MM": ("month", "[0-9]{2}"),
    "M": ("month", "[0-9]{1,2}"),
    "MMM": ("month_name", "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"),
    "MMMM": (
        "month_name",
        "January|February|March|April|May|June|July|August|September|October|November|December",
    ),
    "E": ("weekday", _DAYS),
    "EEE": ("weekday", _DAYS),
    "EEEE": ("weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"),
    "dd": ("day", "[0-9]{2}"),
    "d": ("day", "[0-9]{1,2}"),
    "HH": ("hour", "[0-9]{2}"),
    "H": ("hour", "[0-9]{1,2}"),
    "hh": ("half_hour", "0[1-9]|1[0-2]"),
    "h": ("half_hour", "0?[1-9]|1[0-2]"),
    "mm": ("minute", "[0-9]{2}"),
    "m": ("minute", "[0-9]{1,2}"),
    "ss": ("second", "[0-9]{2}"),
    "s": ("second", "[0-9]{1,2}"),
    "a": ("half", "AM|PM"),
    "Z": ("zone", rf"[+-](?:{_HOURS}[0-5][0-9]|1800)"),
    "xx": ("zone", rf"[+-](?:{_HOURS}[0-5][0-9]|1800)"),
    "XX": ("zone", rf"Z|[+-](?:{_HOURS}[0-5][0-9]|1800)"),
    "xxx": ("zone", rf"[+-](?:{_HOURS}:[0-5][0-9]|18:00)"),
    "z": ("zone_name", "[A-Z]{1,6}"),
    "zzz": ("zone_name", "[A-Z]{1,6}"),
    "XXX": ("zone", rf"Z|[+-](?:{_HOURS}:[0-5][0-9]|18:00)"),
}
_NUMBERS = ("year", "month", "day", "hour", "half_hour", "minute", "second", "fraction")
_COARSER = (
    ("minute", "hour"),
    ("second", "minute"),
    ("fraction", "second"),
    ("zone", "hour"),
    ("zone_name", "hour"),
)
_NOT_FIXED = ("M", "d", "H", "h", "m", "s")
LETTERS = f"{', '.join(_PARTS)}, S to SSSSSSSSS"


@dataclass(frozen=True)
class TimePattern:
    """The form of a text, and the parts of a time that it names.

    `regex` is in RE2's syntax, with a group for each of `parts`.
    """

    regex: str
    parts: tuple[str, ...]

    @property
    def has_zone(self) -> bool:
        """Whether each text names its offset."""
        return "zone" in self.parts


@cache
def parse_pattern(text: str) -> TimePattern:
    """The meaning of a pattern like `dd/MMM/yyyy:HH:mm:ss Z`; texts may use any case, as with Spark.

    Raises:
        ValueError: the pattern has an unknown letter, a part twice, no whole date, or leaves open where a number ends.
    """
    regex, parts, open_end = "", [], False
    for letters, literal in _pieces(text):
        if not letters:
            regex, open_end = regex + _escaped(literal), False
            continue
        name, part = _part(letters)
        if open_end and name in _NUMBERS:
            raise ValueError(
                f"where the number before {letters} ends is not clear in {text!r}: write two letters, as MM"
            )
        open_end = letters in _NOT_FIXED or name == "fraction"
        # Java takes up to nineteen digits for a letter that stands alone.
        regex += ("0{0,17}" if letters in _NOT_FIXED else "") + f"(?P<{name}>{part})"
        parts.append(name)
    _check(text, parts)
    return TimePattern(rf"\A(?i:{regex})\z", tuple(parts))


def _part(letters: str) -> tuple[str, str]:
    if re.fullmatch("S{1,9}", letters):
        return "fraction", f"[0-9]{{1,{len(letters)}}}"
    if letters not in _PARTS:
        raise ValueError(f"{letters} is no part of a pattern; they are {LETTERS}; other letters stand in 'quotes'")
    return _PARTS[letters]


def _check(text: str, parts: list[str]) -> None:
    twice = {part for part in parts if parts.count(part) > 1} | (
        {"month"} if {"month", "month_name"} <= {*parts} else set()
    )
    if {"zone", "zone_name"} <= {*parts}:
        twice.add("zone")
    if twice:
        raise ValueError(f"{text!r} has the {sorted(twice)[0]} twice")
    if not ({"year", "day"} <= {*parts} and {"month", "month_name"} & {*parts}):
        raise ValueError(f"{text!r} has no whole date: yyyy, MM or MMM, dd")
    if ("half" in parts) != ("half_hour" in parts) or {"hour", "half_hour"} <= {*parts}:
        raise ValueError(f"{text!r}: hh goes with a (AM, PM), HH without")
    order = ["hour" if part == "half_hour" else part for part in parts]
    for fine, coarse in (
        ("minute", "hour"),
        ("second", "minute"),
        ("fraction", "second"),
        ("zone", "hour"),
        ("zone_name", "hour"),
    ):
        if fine in order and coarse not in order:
            raise ValueError(f"{text!r} has the {fine} and not the {coarse}")


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """(letters of a part, ""), or ("", literal text)."""
    for match in re.finditer(r"(([A-Za-z])\2*)|'((?:[^']|'')*)'|(.)", text, re.DOTALL):
        letters, _, quoted, other = match.groups()
        if other is not None and other in "'[]{}#":
            raise ValueError(f"{other} has a meaning in patterns that is not taken; put it into 'quotes'")
        if quoted is not None:
            yield "", quoted.replace("''", "'") or "'"
        else:
            yield letters or "", other or ""


def _escaped(literal: str) -> str:
    return "".join(rf"\x{{{ord(char):x}}}" if not char.isalnum() else char for char in literal)
