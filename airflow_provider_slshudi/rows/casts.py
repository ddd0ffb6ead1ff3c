"""Casts a whole column at once; splits it only if some value fails.

If values do not fit, a pattern sorts out most of these first, then halving finds the rest.
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

    Every text that `cast` takes has to match `pattern`.
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
    """`cast` of each value, NULL where it fails; quick if few values fail."""
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
        # Most columns are ASCII: one look at all bytes shows it, while Arrow looks at value by value.
        return values.view(pa.string())
    return attempt(values, lambda part: part.cast(pa.string()), _UTF8)


def bytes_of(values: pa.Array) -> Any:
    """All values' bytes, one after the other, also those that lie behind a NULL."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[ends[values.offset] : ends[values.offset + len(values)]]


def has_letter(text: pa.Array, letter: str) -> bool:
    """Whether any value holds the ASCII letter, given in lower case, in either case."""
    held = bytes_of(text).tobytes()
    has_byte = letter.encode() in held or letter.upper().encode() in held
    # The letter may be in the bytes of a value that was made NULL.
    return bool(has_byte and pc.any(pc.match_substring(text, letter, ignore_case=True)).as_py())
