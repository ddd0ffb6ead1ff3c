"""Does slshudi-native's work on JSON with Python's `json`, if that is not installed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

DEEPEST = 100
"""The most arrays and objects that may be nested."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)
_BROKEN: Any = object()

_Levels = list[tuple[str, list[tuple[str, int]]]]


class _Shredder:
    def __init__(self, levels: _Levels) -> None:
        self._levels = levels
        self.valid: list[list[bool]] = [[] for _ in levels]
        self.rows: list[list[int]] = [[] for _ in levels]
        self.begins: list[list[int]] = [[] for _ in levels]
        self.texts: list[list[str | None]] = [[] for _ in levels]

    def put(self, value: Any, place: int, row: int) -> None:
        """Adds a value that fits."""
        kind, within = self._levels[place]
        self.valid[place].append(value is not None)
        if kind == "struct":
            for name, below in within:
                self.put(None if value is None else value.get(name), below, row)
        elif kind == "list" or kind == "map":
            below = within[0][1]
            self.begins[place].append(len(self.valid[below]))
            items = value or ()
            if kind == "map" and value:
                self.texts[place] += value
                items = value.values()
            for item in items:
                self.put(item, below, row)
        else:
            self.texts[place].append(_as_text(value))
            self.rows[place].append(row)

    def end(self) -> None:
        for place, (kind, within) in enumerate(self._levels):
            if kind == "list" or kind == "map":
                self.begins[place].append(len(self.valid[within[0][1]]))


def shred(text: pa.Array, levels: _Levels) -> list[tuple[list[bool], list[int], list[int], pa.Array]]:
    """As `slshudi_native.shred`: per level a mask of non-NULLs, the texts' numbers, the items' begins, and texts."""
    shredder = _Shredder(levels)
    for row, value in enumerate(map(_decoded, text.to_pylist())):
        shredder.put(value if _fits(value, levels, 0) else None, 0, row)
    shredder.end()
    texts = [pa.array(level_texts, pa.string()) for level_texts in shredder.texts]
    return list(zip(shredder.valid, shredder.rows, shredder.begins, texts, strict=True))


def pick(text: pa.Array, steps: tuple[str | int, ...]) -> tuple[pa.Array, pa.Array]:
    """As `slshudi_native.pick`: the values at a path, and which texts are no JSON."""
    values = [_decoded(each) for each in text.to_pylist()]
    texts = [None if value is _BROKEN else _as_text(_at(value, steps)) for value in values]
    return pa.array(texts, pa.string()), pa.array([value is _BROKEN for value in values], pa.bool_())


def _decoded(text: str | None) -> Any:
    """The text's value; numbers as they are written."""
    if text is None:
        return None
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
            return _BROKEN
        if "\\u" in text:
            _dumped(value).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return _BROKEN
    return value


def _depth(value: Any) -> int:
    depth, parts = 0, [value]
    while parts := [part for part in parts if isinstance(part, (dict, list))]:
        depth += 1
        parts = [item for part in parts for item in (part.values() if isinstance(part, dict) else part)]
    return depth


def _at(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def _as_text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return _dumped(value)


def _dumped(value: Any) -> str:
    """JSON without spaces; numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dumped(key)}:{_dumped(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _fits(value: Any, levels: _Levels, place: int) -> bool:
    """Whether the value has the level's shape; the conversion shows later whether its texts fit."""
    kind, within = levels[place]
    if value is None:
        return True
    if kind == "list":
        return isinstance(value, list) and all(_fits(item, levels, within[0][1]) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(_fits(item, levels, within[0][1]) for item in value.values())
    if kind == "struct":
        return isinstance(value, dict) and all(_fits(value.get(name), levels, below) for name, below in within)
    return kind == "text" or not isinstance(value, (dict, list))
