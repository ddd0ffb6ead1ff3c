"""The types a column may have, as text and as a tree.

The text is that of Spark's DDL (spark.apache.org/docs/3.5.9/sql-ref-datatypes.html), without `tinyint` and `smallint`:
Avro, the language of Hudi's table schemas, knows these only as `int`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

SCALARS = ("string", "int", "bigint", "float", "double", "boolean", "date", "timestamp", "binary")
ALLOWED = f"{', '.join(SCALARS)}, decimal(p,s), array<T>, map<string,T>, struct<name:T,...>"
MOST_DIGITS = 38
"""The greatest precision of a decimal, Spark's and Parquet's bound."""
DEEPEST = 32
"""The most arrays, maps and structs that may be nested."""

_BOUNDED = ("int", "bigint", "date", "timestamp")

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[<>(),:])\s*")


@dataclass(frozen=True)
class Scalar:
    """A type without parts; `name` is one of SCALARS."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Decimal:
    """Numbers of at most `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array:
    """Any number of values of one type."""

    element: DataType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map:
    """Values of one type, each under a text."""

    value: DataType

    def __str__(self) -> str:
        return f"map<string,{self.value}>"


@dataclass(frozen=True)
class Struct:
    """Named values, each of its own type."""

    fields: tuple[tuple[str, DataType], ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{name}:{type_}' for name, type_ in self.fields)}>"


DataType = Scalar | Decimal | Array | Map | Struct


@cache
def parse_type(text: str) -> DataType:
    """The tree of a type's text; `str` of it is the text in its one canonical form.

    Raises:
        ValueError: the text is no type; the message says where it goes wrong and what is allowed.
    """
    reader = _Reader(text)
    tree = reader.type_(0)
    reader.end()
    return tree


def holds(type_: DataType, name: str) -> bool:
    """Whether the type is the scalar `name`, or contains it."""
    return any(part == Scalar(name) for part in _parts(type_))


def has_bounds(type_: DataType) -> bool:
    """Whether every reader may skip files by the least and the greatest value of a column of this type.

    Not by texts: Parquet keeps no bounds of long ones, and Hudi orders letters otherwise than Spark. Not by floating
    numbers: bounds leave NaN out. Not by binaries: Hudi fails at Spark's way to compare them. Not by decimals: Hudi
    takes older files' bounds for ones of the newest scale.
    """
    return isinstance(type_, Scalar) and type_.name in _BOUNDED


def _parts(type_: DataType) -> Iterator[DataType]:
    yield type_
    if isinstance(type_, Array):
        yield from _parts(type_.element)
    elif isinstance(type_, Map):
        yield from _parts(type_.value)
    elif isinstance(type_, Struct):
        for _, field in type_.fields:
            yield from _parts(field)


class _Reader:
    """Reads a type's text from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def type_(self, depth: int) -> DataType:
        if depth > DEEPEST:
            raise ValueError(f"types are within each other {DEEPEST} times at most")
        begin, name = self._at, self._next().lower()
        if name in SCALARS:
            return Scalar(name)
        if name == "decimal":
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self.type_(depth + 1)
            self._expect(">")
            return Array(element)
        if name == "map":
            return self._map(depth)
        if name == "struct":
            return self._struct(depth)
        raise self._refusal(begin)

    def end(self) -> None:
        if self._at < len(self._text):
            raise self._refusal(self._at)

    def _decimal(self) -> Decimal:
        begin = self._at
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            arguments = self._text[begin : self._at]
            raise ValueError(
                f"decimal{arguments}: expected 1 to {MOST_DIGITS} digits, and of them no more behind the point"
            )
        return Decimal(precision, scale)

    def _map(self, depth: int) -> Map:
        self._expect("<")
        begin = self._at
        if self._next().lower() != "string":
            raise ValueError(f"at {self._text[begin:]!r}: the keys of a map are strings: map<string,T>")
        self._expect(",")
        value = self.type_(depth + 1)
        self._expect(">")
        return Map(value)

    def _struct(self, depth: int) -> Struct:
        self._expect("<")
        fields: dict[str, tuple[str, DataType]] = {}
        while True:
            begin, name = self._at, self._next()
            if not re.match(r"[A-Za-z_]", name):
                raise self._refusal(begin)
            if name.lower() in fields:
                raise ValueError(f"the struct has {name} twice; Spark does not tell A from a in names")
            self._expect(":")
            fields[name.lower()] = (name, self.type_(depth + 1))
            begin, end = self._at, self._next()
            if end == ">":
                return Struct(tuple(fields.values()))
            if end != ",":
                raise self._refusal(begin)

    def _number(self) -> int:
        begin, text = self._at, self._next()
        if not text.isdigit():
            raise self._refusal(begin)
        return int(text)

    def _expect(self, token: str) -> None:
        begin = self._at
        if self._next() != token:
            raise ValueError(f"expected {token} at {self._text[begin:]!r}; a type is one of {ALLOWED}")

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[1]

    def _refusal(self, begin: int) -> ValueError:
        where = f"at {self._text[begin:]!r}: " if begin else ""
        return ValueError(f"{where}a type is one of {ALLOWED}")
