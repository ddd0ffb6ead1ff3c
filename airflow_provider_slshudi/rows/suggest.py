"""Columns for the keys of sampled logs: each of the narrowest type that all of its values convert to.

A type fits if our own conversion (`rows/convert.py`) makes a value of every text. This sees samples, never a batch, so
parts of it may work in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, misfits
from airflow_provider_slshudi.sls.columns import META, REST, TAG
from airflow_provider_slshudi.types.datatypes import DEEPEST

LOG_TIME, TOPIC, SOURCE = "__time__", "__topic__", "__source__"

_PATTERNS = ("dd/MMM/yyyy:HH:mm:ss Z", "yyyy/MM/dd HH:mm:ss", "yyyyMMddHHmmss", "yyyyMMdd'T'HHmmss")
_COUNTS = {"seconds": 1, "millis": 1_000, "micros": 1_000_000}
_NEAR_SECONDS = 366 * 86_400
"""Whole numbers within a year of their logs' own times count as times."""
MOST_KEYS = 300
"""The most keys that get a column, those of the most logs: some producers write values where keys belong."""
_MOSTLY = 0.9
_MOST_FIELDS = 50
_JSON_VALUES = 1_000
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXAMPLE = 60
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Suggestion:
    """A column for a key: how many of the sampled logs have it, one of its values, and a note for the user."""

    key: str
    name: str
    type: str
    format: str | None
    logs: int
    share: float
    example: str
    note: str = ""

    def column(self) -> dict[str, str]:
        """The column as a pipeline file spells it."""
        given = {"name": self.name, "type": self.type if self.type != "string" else None, "format": self.format}
        given["key"] = self.key if self.key != self.name else None
        return {field: value for field, value in given.items() if value is not None}


def suggest(logs: pa.Table, taken: Collection[str] = (), names: Collection[str] = ()) -> list[Suggestion]:
    """A column for each key of `logs` (as `sls.decode` gives them, without keys), except the keys `taken`.

    Most frequent keys first, at most MOST_KEYS of the logs' own. Left out are keys that no column can name: empty ones,
    those that are no UTF-8, and those named like a field beside the contents. Names are made of the keys and avoid
    `names`.
    """
    count, used = logs.num_rows, set(names)
    found = []
    for key, values, times in _by_key(logs, taken):
        type_, format_, note = _type_of(values, times)
        name = _name(key, used)
        used.add(name)
        example = values[0].as_py().decode("utf-8", "backslashreplace")
        found.append(Suggestion(key, name, type_, format_, len(values), len(values) / count, example[:_EXAMPLE], note))
    return sorted(found, key=lambda item: (-item.logs, item.key))


def left_out(logs: pa.Table, found: Collection[Suggestion]) -> int:
    """How many of the logs' own keys have no column in `found`, which `suggest` gave for all keys."""
    keys = sum(item.key not in META.names for item in found)
    return len(pc.unique(logs[REST.name].combine_chunks().keys)) - keys if logs.num_rows else 0


def free_name(wanted: str, used: Collection[str]) -> str:
    """`wanted`, with a number behind it if it is `used`."""
    number, made = 1, wanted
    while made in used:
        number += 1
        made = f"{wanted}_{number}"
    return made


def _by_key(logs: pa.Table, taken: Collection[str]) -> Iterator[tuple[str, pa.Array, Any]]:
    """Each key with its values and the times of their logs; not the `taken` ones."""
    if not logs.num_rows:
        return
    flat = {name: logs[name].combine_chunks() for name in (LOG_TIME, TOPIC, SOURCE, REST.name)}
    rest, times = flat[REST.name], flat[LOG_TIME].to_numpy()
    if LOG_TIME not in taken:
        yield LOG_TIME, flat[LOG_TIME].cast(pa.string()).cast(pa.binary()), times
    for name in (TOPIC, SOURCE):
        if name not in taken and pc.any(pc.greater(pc.binary_length(flat[name]), 0)).as_py():
            yield name, flat[name], times
    if not len(rest.keys):
        return
    coded, items = rest.keys.dictionary_encode(), rest.items
    owners = np.repeat(np.arange(len(rest)), np.diff(rest.offsets.to_numpy()))
    # A log may hold a key twice: the last one counts.
    pairs = owners * len(coded.dictionary) + coded.indices.to_numpy()
    _, last = np.unique(pairs[::-1], return_index=True)
    kept = np.sort(len(pairs) - 1 - last)
    codes = coded.indices.to_numpy()[kept]
    order = kept[np.argsort(codes, kind="stable")]
    counts = np.bincount(codes, minlength=len(coded.dictionary))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    keys = ((code, _key(coded.dictionary[code].as_py(), taken)) for code in np.argsort(-counts, kind="stable"))
    for code, key in islice((found for found in keys if found[1]), MOST_KEYS):
        places = order[bounds[code] : bounds[code + 1]]
        yield key, items.take(places), times[owners[places]]


def _key(key: bytes, taken: Collection[str]) -> str:
    """The key as a column names it; empty where no column can, or one does."""
    try:
        name = key.decode()
    except UnicodeDecodeError:
        return ""
    # A content of such a name does not reach its column (`sls.decode`).
    return "" if name in taken or name in META.names or name == REST.name else name


def _type_of(values: pa.Array, times: Any) -> tuple[str, str | None, str]:
    """Type, format and a note for the values of a key."""
    if misfits(values, convert(values, ColumnSpec("", "string", ""))):
        return "binary", None, "not all of it is UTF-8"
    text = values.cast(pa.string())
    found = _narrowest(values, text, times)
    if found is not None:
        return *found, ""
    return "string", None, _almost(values, text, times)


def _narrowest(values: pa.Array, text: pa.Array, times: Any) -> tuple[str, str | None] | None:
    if _is_number(values, text, "bigint"):
        format_ = _count_of(text, times)
        return ("timestamp", format_) if format_ else ("bigint", None)
    if _is_number(values, text, "double"):
        return "double", None
    for type_ in _of_json(text):
        if _fits(values, type_):
            return type_, None
    if _fits(values, "boolean"):
        return "boolean", None
    return _time_of(values, text)


def _almost(values: pa.Array, text: pa.Array, times: Any) -> str:
    """A note on a type that would fit but for a few values, such as an empty text for a missing one."""
    for type_ in ("bigint", "double", "boolean", "date"):
        after = convert(values, ColumnSpec("", type_, ""))
        fits = after.is_valid()
        fitting = values.filter(fits)
        if _MOSTLY * len(values) <= len(fitting) < len(values):
            found = _narrowest(fitting, text.filter(fits), times[fits.to_numpy(zero_copy_only=False)])
            if found is not None and found[0] != "string":
                other = text.filter(pc.invert(fits))[0].as_py()
                return f"{found[0]} but for {len(values) - len(fitting)} values like {other[:_EXAMPLE]!r}"
    return ""


def _fits(values: pa.Array, type_: str, format_: str | None = None) -> bool:
    return not misfits(values, convert(values, ColumnSpec("", type_, "", format_)))


def _is_number(values: pa.Array, text: pa.Array, type_: str) -> bool:
    """Whether all values are numbers that keep their zeros and digits, and not all are words like nan."""
    lost = r"\A[+-]?0[0-9]" if type_ == "bigint" else r"\A[+-]?(0[0-9]|[0-9]{16,}\z)"
    if not _fits(values, type_) or pc.any(pc.match_substring_regex(text, lost)).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(text, "[0-9]")).as_py())


def _count_of(text: pa.Array, times: Any) -> str | None:
    """The unit in which whole numbers are near their logs' times, None if there is none."""
    counts = convert(text.cast(pa.binary()), ColumnSpec("", "bigint", "")).to_numpy()
    for unit, per_second in _COUNTS.items():
        if (np.abs(counts / per_second - times) < _NEAR_SECONDS).all():
            return unit
    return None


def _time_of(values: pa.Array, text: pa.Array) -> tuple[str, str | None] | None:
    longest = pc.max(pc.binary_length(text)).as_py()
    if _fits(values, "timestamp", "iso8601") and longest > len("2026-01-31"):
        return "timestamp", "iso8601"
    if longest <= len("2026-01-31") and _fits(values, "date"):
        return "date", None
    for pattern in _PATTERNS:
        if _fits(values, "timestamp", pattern):
            return "timestamp", pattern
    return None


def _of_json(text: pa.Array) -> Iterator[str]:
    """The type of JSON texts, if all are: a struct, or a map if it would have too many fields."""
    if not pc.all(pc.match_substring_regex(text, r"\A\s*[\[{]")).as_py():
        return
    try:
        parsed = [json.loads(value) for value in text.slice(0, _JSON_VALUES).to_pylist()]
    except (ValueError, RecursionError):
        return
    yield _json_type(parsed)


def _json_type(values: list[Any], depth: int = 0) -> str:
    """The type that JSON values in the same place have in common; a text beyond what types may nest."""
    if depth == DEEPEST:
        return "string"
    values = [value for value in values if value is not None]
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(abs(value) < 1 << 63 for value in values):
        return "bigint"
    if kinds and kinds <= {int, float}:
        return "double"
    if kinds == {list}:
        return f"array<{_json_type([item for value in values for item in value], depth + 1)}>"
    if kinds != {dict}:
        return "string"
    names = dict.fromkeys(name for value in values for name in value)
    lower = {name.lower() for name in names}
    plain = all(_IDENTIFIER.fullmatch(name) for name in names) and len(lower) == len(names)
    if not names or not plain or len(names) > _MOST_FIELDS:
        return f"map<string,{_json_type([item for value in values for item in value.values()], depth + 1)}>"
    fields = (f"{name}:{_json_type([value.get(name) for value in values], depth + 1)}" for name in names)
    return f"struct<{','.join(fields)}>"


def _name(key: str, used: Collection[str]) -> str:
    """A column's name for a key: lower-case letters, digits and _, and none that Hudi or Spark keeps for itself."""
    plain = key.removeprefix(TAG.decode()).strip("_") if key.startswith("__") else key
    name = re.sub(r"[^a-z0-9_]+", "_", plain.lower())[:_LONGEST_NAME]
    if key == LOG_TIME:
        name = "log_time"
    if not name.strip("_"):
        name = "column"
    if name[0].isdigit() or name.startswith(("_hoodie_", "_tmp_metadata_")):
        name = f"c_{name}"
    return free_name(name, used)
