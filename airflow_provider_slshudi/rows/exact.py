"""Which texts are exactly what their value prints as, so that a narrower type than text keeps all that a text says.

This sees samples, never a batch, so it may work in Python.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.datatypes import DEEPEST
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert

PRINTING = ("bigint", "double", "boolean", "date")
"""The types that `is_printed` knows."""

_PRINTED = {
    "bigint": r"\A(0|-?[1-9][0-9]*)\z",
    "double": r"\A-?(0|[1-9][0-9]*)\.[0-9]+\z",
    "boolean": r"\A(true|false)\z",
    "date": r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z",
}
_ZONE = r"(?P<zone> ?(?:Z|[+-][0-9:]{2,6}|[A-Z]{3,4}))\z"
_MOST_FIELDS = 50
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Number(str):
    """A number of JSON as it is written."""

    __slots__ = ()


def is_printed(text: pa.Array, type_: str) -> Any:
    """A mask of the texts (string) that are what their value of `type_`, one of PRINTING, prints as.

    A double prints with the fewest digits that tell it from others, one of them behind the point, without exponent.
    """
    has_form = pc.match_substring_regex(text, _PRINTED[type_])
    mask = pc.and_(has_form, convert(text.cast(pa.binary()), ColumnSpec("", type_, "")).is_valid())
    printed_mask = mask.to_numpy(zero_copy_only=False).copy()
    if type_ == "double":
        for place in np.nonzero(printed_mask)[0]:
            printed_mask[place] = text[int(place)].as_py() == printed_double(text[int(place)].as_py())
    return printed_mask


def printed_double(text: str) -> str:
    """How the double of a number's text prints; a zero has no sign in a table."""
    return np.format_float_positional(float(text) + 0.0, trim="0")


def is_one_form(text: pa.Array) -> bool:
    """Whether texts of times have one form, so that it and the instants give back each text.

    They may differ in the digits behind the second, six at most, and not in their offsets or their zones' names.
    """
    if pc.any(pc.match_substring_regex(text, "[.,][0-9]{7}")).as_py():
        return False
    zone = pc.extract_regex(text, _ZONE).field("zone")
    form = pc.replace_substring_regex(pc.replace_substring_regex(text, _ZONE, ""), r"[.,][0-9]{1,6}\z", "")
    form = pc.replace_substring_regex(pc.replace_substring_regex(form, "[0-9]", "0"), "[A-Z][a-z]{2}", "Mmm")
    return len(pc.unique(zone)) == 1 and len(pc.unique(form)) == 1


def json_type(text: pa.Array) -> str | None:
    """The type of JSON texts; None where one is no array or object, has a name twice, or as texts the
    values of a place would not tell whether they were text.
    """
    if not pc.all(pc.match_substring_regex(text, r"\A\s*[\[{]")).as_py():
        return None
    decoder = json.JSONDecoder(
        parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_each_once
    )
    try:
        return _common_type([decoder.decode(value) for value in text.to_pylist()])
    except (ValueError, RecursionError):
        return None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name stands twice: a value of any type but text has one of them")
    return fields


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _common_type(values: list[Any], depth: int = 0) -> str:
    """The type that JSON values in the same place have in common; a text beyond what types may nest.

    Objects are a struct only if all have the same fields: other objects may have further ones.
    """
    values = [value for value in values if value is not None]
    kinds = {type(value) for value in values}
    if str in kinds and len(kinds) > 1 and any(type(value) is str and _is_json(value) for value in values):
        raise ValueError('as texts, 1 and "1" would be the same')
    if depth == DEEPEST:
        return "string"
    if kinds == {bool}:
        return "boolean"
    if kinds == {_Number}:
        numbers = pa.array(map(str, values), pa.string())
        return next((type_ for type_ in ("bigint", "double") if is_printed(numbers, type_).all()), "string")
    if kinds == {list}:
        return f"array<{_common_type([item for value in values for item in value], depth + 1)}>"
    if kinds != {dict}:
        return "string"
    names = list(values[0])
    same = all(value.keys() == values[0].keys() for value in values)
    plain = all(_IDENTIFIER.fullmatch(name) for name in names) and len({name.lower() for name in names}) == len(names)
    if not names or not same or not plain or len(names) > _MOST_FIELDS:
        return f"map<string,{_common_type([item for value in values for item in value.values()], depth + 1)}>"
    fields = (f"{name}:{_common_type([value[name] for value in values], depth + 1)}" for name in names)
    return f"struct<{','.join(fields)}>"
