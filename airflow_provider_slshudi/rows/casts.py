"""Casts of whole columns that may fail for some values: all at once, and only where that fails apart.

Where values do not fit, the fitting ones are told by a pattern, and what the pattern lets through by halving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_UTF8 = r"\A(?s:.)*\z"

Cast = Callable[[pa.Array], pa.Array]


def attempt(values: pa.Array, cast: Cast, pattern: str) -> pa.Array:
    """`cast` of each value, NULL where it does not match `pattern` (RE2) or cannot be cast.

    Whatever `cast` takes has to match `pattern`.
    """
    try:
        return cast(values)
    except pa.ArrowInvalid:
        return halve(matching(values, pattern), cast)


def matching(values: pa.Array, pattern: str) -> pa.Array:
    """`values`, NULL where they do not match `pattern`."""
    # RE2 reads bytes that are no UTF-8 as no character at all, so the unchecked view is safe to match.
    text = values if pa.types.is_string(values.type) else values.view(pa.string())
    return pc.if_else(pc.match_substring_regex(text, pattern), values, pa.scalar(None, values.type))


def halve(values: pa.Array, cast: Cast) -> pa.Array:
    """`cast` of each value, NULL where it fails; quick where that is seldom."""
    try:
        return cast(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return cast(pa.nulls(1, values.type))
        middle = len(values) // 2
        return pa.concat_arrays([halve(values.slice(0, middle), cast), halve(values.slice(middle), cast)])


def as_text(values: pa.Array) -> pa.Array:
    """`values` as UTF-8, NULL where they are not."""
    held = bytes_of(values)
    if not held.size or held.max() < 128:
        # ASCII, mostly so, is seen in all bytes at once, where Arrow looks at value by value.
        return values.view(pa.string())
    return attempt(values, lambda part: part.cast(pa.string()), _UTF8)


def bytes_of(values: pa.Array) -> Any:
    """All values' bytes, one after the other, NULL's included where it has any."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[ends[values.offset] : ends[values.offset + len(values)]]


def has_letter(text: pa.Array, letter: str) -> bool:
    """Whether any value holds the ASCII letter, given in lower case, in either case."""
    held = bytes_of(text).tobytes()
    seen = letter.encode() in held or letter.upper().encode() in held
    # The bytes may be those of a value that was made NULL.
    return bool(seen and pc.any(pc.match_substring(text, letter, ignore_case=True)).as_py())
