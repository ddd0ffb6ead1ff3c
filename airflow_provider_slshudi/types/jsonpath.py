"""Paths to a column's value in a JSON text: `$.user.id`, `$.items[0].price`, `$['odd name']`.

A path names one place, in the way of Spark's `get_json_object`
(spark.apache.org/docs/3.5.9/api/sql/#get_json_object).
"""

from __future__ import annotations

import re
from functools import cache

_STEP = re.compile(r"\.([^.\[\]'*\s]+)|\[([0-9]{1,9})\]|\['([^']+)'\]")


@cache
def parse_path(text: str) -> tuple[str | int, ...]:
    """The steps from a JSON text's root: a name within an object, a number (from 0) within an array.

    Raises:
        ValueError: the text is no path; the message says where it goes wrong.
    """
    if not text.startswith("$"):
        raise ValueError("a path begins with $, the whole value: $.user.id, $.items[0].price, $['odd name']")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"at {text[at:]!r}: a step is .name, [0] or ['name']; a path names one place, so no *")
        name, index, quoted = match.groups()
        steps.append(int(index) if index is not None else name or quoted)
        at = match.end()
    if not steps:
        raise ValueError("a path has at least one step after $: .name, [0] or ['name']")
    return tuple(steps)
