"""JSON texts to arrays, maps and structs, and to the value at a path.

A text fits wholly or not at all; a text that fits becomes what Spark's `from_json` makes of it
(spark.apache.org/docs/3.5.9/api/sql/#from_json). Texts and numbers within it convert as a column's text does, so that
numbers in quotes fit too.

slshudi-native reads the texts if it is installed, otherwise `rows/plain_json.py`, which makes Python objects per log.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.datatypes import Array, DataType, Decimal, Map, Scalar, Struct
from airflow_provider_slshudi.config.values import parse_path
from airflow_provider_slshudi.rows import plain_json
from airflow_provider_slshudi.rows.casts import as_text
from airflow_provider_slshudi.system.native import native

FromText = Callable[[pa.Array, "Scalar | Decimal"], pa.Array]
Levels = list[tuple[str, list[tuple[str, int]]]]
"""A type in the form that `slshudi_native.shred` takes."""


@dataclass(frozen=True)
class _Level:
    """One level of a column of JSON: see `slshudi_native.shred`."""

    valid: Any
    rows: Any
    begins: Any
    texts: pa.Array


def shredded(text: pa.Array, type_: Array | Map | Struct, from_text: FromText) -> pa.Array:
    """The values of JSON texts (string), NULL where a text is no JSON or does not fit the type.

    `from_text` converts the texts of the innermost values, which have no parts themselves.
    """
    levels: Levels = []
    _describe(type_, levels)
    column, unfit = _column(_shred(text, levels), levels, 0, type_, from_text)
    if len(unfit):
        fits = np.ones(len(text), np.bool_)
        fits[unfit] = False
        text = pc.if_else(pa.array(fits), text, pa.scalar(None, pa.string()))
        column, _ = _column(_shred(text, levels), levels, 0, type_, from_text)
    return column


def at_path(values: pa.Array, path: str) -> tuple[pa.Array, pa.Array]:
    """The values at `path` in JSON texts, twice, as binary.

    The first is the input of a column: texts without their quotes, all else as JSON, NULL where a text has nothing or
    null there. The second has the whole text where that is no JSON, so that it counts as a misfit.
    """
    text, steps = as_text(values), parse_path(path)
    if native is None:
        texts, broken = plain_json.pick(text, steps)
    else:
        named = [(step, 0) if isinstance(step, str) else (None, step) for step in steps]
        offsets, data, state = native.pick(*_bytes(text), named)
        states = np.frombuffer(state, np.uint8)
        texts = _texts(states == 1, offsets, data)
        broken = pa.array(states == 2)
    # A text that is no UTF-8 is no JSON either.
    broken = pc.or_(broken, pc.and_(pc.is_valid(values), pc.is_null(text)))
    picked = texts.cast(pa.binary())
    return picked, pc.if_else(broken, values, picked)


def _describe(type_: DataType, levels: Levels) -> int:
    """Adds the type's levels; returns the number of the first."""
    place, within = len(levels), list[tuple[str, int]]()
    kinds: dict[Any, str] = {Array: "list", Map: "map", Struct: "struct"}
    levels.append((kinds.get(type(type_), "text" if type_ == Scalar("string") else "scalar"), within))
    if isinstance(type_, Array):
        within.append(("", _describe(type_.element, levels)))
    elif isinstance(type_, Map):
        within.append(("", _describe(type_.value, levels)))
    elif isinstance(type_, Struct):
        within += [(name, _describe(field, levels)) for name, field in type_.fields]
    return place


def _shred(text: pa.Array, levels: Levels) -> list[_Level]:
    if native is None:
        return [
            _Level(np.array(valid, np.bool_), np.array(rows, np.int32), np.array(begins, np.int32), texts)
            for valid, rows, begins, texts in plain_json.shred(text, levels)
        ]
    shredded_levels = []
    for (kind, _), (valid, rows, begins, offsets, data) in zip(
        levels, native.shred(*_bytes(text), levels), strict=True
    ):
        is_valid = np.frombuffer(valid, np.bool_)
        count = len(offsets) // 4 - 1
        texts = _texts(np.ones(count, np.bool_) if kind == "map" else is_valid, offsets, data) if count else None
        shredded_levels.append(_Level(is_valid, np.frombuffer(rows, np.int32), np.frombuffer(begins, np.int32), texts))
    return shredded_levels


def _column(
    found: list[_Level], levels: Levels, place: int, type_: DataType, from_text: FromText
) -> tuple[pa.Array, Any]:
    """The values of a level, and the numbers of the texts that have a misfit in it."""
    level, (_, within) = found[place], levels[place]
    if isinstance(type_, (Scalar, Decimal)):
        before = level.texts if level.texts is not None else pa.array([], pa.string())
        after = _from_base64(before) if type_ == Scalar("binary") else from_text(before, type_)
        lost = pc.and_(pc.is_valid(before), pc.is_null(after))
        return after, level.rows[lost.to_numpy(zero_copy_only=False)]
    kind = arrow_type(str(type_))
    if isinstance(type_, Struct):
        fields = [
            _column(found, levels, below, field, from_text)
            for (_, below), (_, field) in zip(within, type_.fields, strict=True)
        ]
        columns = [column for column, _ in fields]
        array = pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(~level.valid))
        return array, np.concatenate([unfit for _, unfit in fields])
    # Arrow makes a list NULL if its begin is NULL.
    begins = pa.array(level.begins, mask=np.append(~level.valid, False))
    below = type_.element if isinstance(type_, Array) else type_.value
    items, unfit = _column(found, levels, within[0][1], below, from_text)
    if isinstance(type_, Array):
        return pa.ListArray.from_arrays(begins, items, kind), unfit
    keys = level.texts if level.texts is not None else pa.array([], pa.string())
    return pa.MapArray.from_arrays(begins, keys, items, kind), unfit


def _bytes(text: pa.Array) -> tuple[bytes, bytes, bytes]:
    """Offsets, data and one byte per text, 0 where the text is NULL."""
    _, offsets, data = text.buffers()
    places: NDArray[Any] = np.zeros(1, np.int32)
    if len(text):
        places = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    held = memoryview(data)[places[0] : places[-1]] if data is not None else b""
    valid = text.is_valid().to_numpy(zero_copy_only=False)
    return (places - places[0]).tobytes(), bytes(held), valid.tobytes()


def _texts(valid: Any, offsets: bytes, data: bytes) -> pa.Array:
    bits = np.packbits(valid, bitorder="little").tobytes()
    buffers = [pa.py_buffer(part) for part in (bits, offsets, data)]
    return pa.Array.from_buffers(pa.string(), len(valid), buffers)


def _from_base64(text: pa.Array) -> pa.Array:
    """The bytes of base64 texts, one by one in Python: Arrow has no such cast."""

    def decoded(value: str | None) -> bytes | None:
        try:
            return None if value is None else base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return None

    return pa.array([decoded(value) for value in text.to_pylist()], pa.binary())
