"""Regular expressions of the language: RE2's, with numbered groups, and replacements as Java writes them."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# An escaped letter, a class (a bracket may come first, and POSIX classes stand within), a group's begin, a letter.
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]"
    r"|(?P<group>\(\?P?<[A-Za-z_]\w*>|\((?!\?))|.",
    re.DOTALL,
)


_REFUSED = ("\\Q", "\\C")
"""What changes how the rest is read, and what cuts letters into bytes."""


def grouped(pattern: str, wanted: Collection[int]) -> tuple[str, int]:
    """A pattern (RE2) whose wanted groups have the names g1, g2 and so on, the whole is g0; and how many it has.

    Other groups capture nothing: RE2's time grows with what it captures.
    """
    count, parts, place = 0, list[str](), 0
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        assert token is not None  # noqa: S101 - any letter is one
        text, place = token[0], token.end()
        if token["group"]:
            count += 1
            text = f"(?P<g{count}>" if count in wanted else "(?:"
        elif text in _REFUSED:
            raise ValueError(f"pattern {pattern!r}: {text} is not part of the language")
        parts.append(text)
    whole = "".join(parts)
    return (f"(?P<g0>{whole})" if 0 in wanted else whole), count


def require_pattern(pattern: str, group: int = 0) -> None:
    """Raises ValueError where RE2 does not take the pattern, or it has fewer groups."""
    _, count = grouped(pattern, ())
    try:
        pc.extract_regex(pa.array([""]), grouped(pattern, (0, group))[0])
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        why = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(
            f"pattern {pattern!r}: {why}; patterns are RE2's, without lookaround and backreferences"
        ) from None
    if not 0 <= group <= count:
        raise ValueError(f"pattern {pattern!r} has {count} groups, and not group {group}")


def groups_of(text: Any, pattern: str, wanted: Collection[int]) -> Any:
    """Some groups of the first place that matches, as a struct; NULL where none does."""
    return pc.extract_regex(text, grouped(pattern, wanted)[0])


def group_text(text: Any, groups: Any, group: int) -> Any:
    """A group as regexp_extract gives it: an empty text where the pattern does not match."""
    values = pc.struct_field(groups, f"g{group}")
    return (
        values
        if groups.null_count == text.null_count
        else pc.if_else(pc.is_valid(text), pc.fill_null(values, ""), None)
    )


def replaced(text: Any, pattern: str, by: str) -> Any:
    """`text` with another one in the place of what matches."""
    return pc.replace_substring_regex(text, pattern, _replacement(by)[0])


@lru_cache
def _replacement(by: str) -> tuple[str, int]:
    """A replacement as RE2 takes it, and the highest group that it names; raises ValueError.

    Java writes a group $1 and a plain letter \\x, RE2 \\1 and \\\\.
    """
    parts, highest = list[str](), 0
    for part in re.findall(r"\\.|\$[0-9]+|.", by, re.DOTALL):
        if part[0] == "$" and len(part) == 2:
            parts.append(f"\\{part[1]}")
            highest = max(highest, int(part[1]))
        elif part[0] == "$" or part == "\\":
            raise ValueError(f"regexp_replace: {by!r}: $1 to $9 are groups, and \\$ is a dollar")
        else:
            parts.append("\\\\" if part == "\\\\" else part[-1])
    return "".join(parts), highest


def require_replacement(pattern: str, by: str) -> None:
    """Raises ValueError where RE2 does not take the pattern, or it has fewer groups than the replacement names."""
    require_pattern(pattern)
    require_pattern(pattern, _replacement(by)[1])
