"""Columns for the keys of sampled logs: each of the narrowest type that keeps all that its values say.

A type fits if our own conversion (`rows/convert.py`) makes a value of every text, and every text is what its value
prints as (`rows/exact.py`). This sees samples, never a batch, so parts of it may work in Python.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.timepattern import COUNTS
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, misfits
from airflow_provider_slshudi.rows.exact import PRINTING, is_one_form, is_printed, json_type, printed_double
from airflow_provider_slshudi.sls.columns import META, REST, TAG

LOG_TIME, TOPIC, SOURCE = "__time__", "__topic__", "__source__"

_PATTERNS = (
    "dd/MMM/yyyy:HH:mm:ss Z",
    "yyyy/MM/dd HH:mm:ss",
    "yyyyMMddHHmmss",
    "yyyyMMdd'T'HHmmss",
    "EEE MMM dd HH:mm:ss yyyy",
    "EEE MMM dd HH:mm:ss.SSSSSS yyyy",
    "EEE, dd MMM yyyy HH:mm:ss z",
    "EEE, dd MMM yyyy HH:mm:ss Z",
)
_COUNT = r"\A[1-9][0-9]{0,18}(\.[0-9]+)?\z"
_NEAR_SECONDS = 366 * 86_400
"""Numbers within a year of their logs' own times count as times."""
MOST_KEYS = 300
"""The most keys that get a column, those of the most logs: some producers write values where keys belong."""
_MOSTLY = 0.9
_INT = 2**31 // 1000
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
        fields = {"name": self.name, "type": self.type if self.type != "string" else None, "format": self.format}
        fields["key"] = self.key if self.key != self.name else None
        return {field: value for field, value in fields.items() if value is not None}


def suggest(logs: pa.Table, taken: Collection[str] = (), names: Collection[str] = ()) -> list[Suggestion]:
    """A column for each key of `logs` (as `sls.decode` gives them, without keys), except the keys `taken`.

    Most frequent keys first, at most MOST_KEYS of the logs' own. Left out are keys that no column can name: empty ones,
    those that are no UTF-8, and those named like a field beside the contents. Names are made of the keys and avoid
    `names`.
    """
    count, used = logs.num_rows, set(names)
    suggestions = []
    for key, values, times in _by_key(logs, taken):
        type_, format_, note = _type_of(values, times)
        name = _name(key, used)
        used.add(name)
        example = values[0].as_py().decode("utf-8", "backslashreplace")
        suggestions.append(
            Suggestion(key, name, type_, format_, len(values), len(values) / count, example[:_EXAMPLE], note)
        )
    return sorted(suggestions, key=lambda item: (-item.logs, item.key))


def left_out(logs: pa.Table, found: Collection[Suggestion]) -> int:
    """How many of the logs' own keys have no column in `found`, which `suggest` gave for all keys."""
    keys = sum(item.key not in META.names for item in found)
    return len(pc.unique(logs[REST.name].combine_chunks().keys)) - keys if logs.num_rows else 0


def free_name(wanted: str, used: Collection[str]) -> str:
    """`wanted`, with a number behind it if it is `used`."""
    number, name = 1, wanted
    while name in used:
        number += 1
        name = f"{wanted}_{number}"
    return name


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
    last_places = np.sort(len(pairs) - 1 - last)
    codes = coded.indices.to_numpy()[last_places]
    order = last_places[np.argsort(codes, kind="stable")]
    counts = np.bincount(codes, minlength=len(coded.dictionary))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    keys = ((code, _key(coded.dictionary[code].as_py(), taken)) for code in np.argsort(-counts, kind="stable").tolist())
    for code, key in islice((coded_key for coded_key in keys if coded_key[1]), MOST_KEYS):
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
    narrowest_type = _narrowest(values, text, times)
    return (*narrowest_type, "") if narrowest_type is not None else ("string", None, _almost(text))


def _narrowest(values: pa.Array, text: pa.Array, times: Any) -> tuple[str, str | None] | None:
    format_ = _count_of(values, text, times)
    if format_ is not None:
        return "timestamp", format_
    for type_ in PRINTING:
        if is_printed(text, type_).all():
            return "int" if type_ == "bigint" and _stays_int(text) else type_, None
    of_json = json_type(text)
    if of_json is not None and _fits(values, of_json):
        return of_json, None
    return _time_of(values, text)


def _stays_int(text: pa.Array) -> bool:
    """Whether whole numbers are so small that an int takes a thousand times the largest of them, too."""
    numbers = pc.cast(text, pa.int64())
    return bool(pc.min(numbers).as_py() > -_INT and pc.max(numbers).as_py() < _INT)


def _almost(text: pa.Array) -> str:
    """A note on a type that would fit but for a few values, such as an empty text for a missing one."""
    for type_ in PRINTING:
        printed = is_printed(text, type_)
        count = int(printed.sum())
        if _MOSTLY * len(text) <= count < len(text):
            other = text[int(np.argmin(printed))].as_py()
            return f"{type_} but for {len(text) - count} values like {other[:_EXAMPLE]!r}"
    numbers = pc.match_substring_regex(text, "[0-9]")
    if pc.all(numbers).as_py() and _fits(text.cast(pa.binary()), "double"):
        altered = text[int(np.argmin(is_printed(text, "double")))].as_py()
        return f"a double would make {printed_double(altered)[:_EXAMPLE]} of {altered[:_EXAMPLE]!r}"
    return ""


def _fits(values: pa.Array, type_: str, format_: str | None = None) -> bool:
    return not misfits(values, convert(values, ColumnSpec("", type_, "", format_)))


def _count_of(values: pa.Array, text: pa.Array, times: Any) -> str | None:
    """The unit in which numbers are near their logs' times, None if there is none."""
    if not pc.all(pc.match_substring_regex(text, _COUNT)).as_py() or not _fits(values, "double"):
        return None
    counts = text.cast(pa.float64()).to_numpy()
    for unit, digits in COUNTS.items():
        if (np.abs(counts * 10.0 ** (digits - 6) - times) < _NEAR_SECONDS).all():
            # Digits below the microsecond would be lost.
            lost = rf"\.[0-9]{{{digits + 1},}}\z" if digits >= 0 else rf"\.|[1-9][0-9]{{0,{-digits - 1}}}\z"
            return unit if not pc.any(pc.match_substring_regex(text, lost)).as_py() else None
    return None


def _time_of(values: pa.Array, text: pa.Array) -> tuple[str, str | None] | None:
    if not is_one_form(text):
        return None
    for format_ in (*(("iso8601",) if _has_seconds(text) else ()), *_PATTERNS):
        if _fits(values, "timestamp", format_):
            return "timestamp", format_
    return None


def _has_seconds(text: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, r"\A.{10}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}")).as_py())


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
