"""The rows of the tables: every value of every type stands in some row, NULL in others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.differential.values import SCALARS

PARTITION = "part"
PLAIN_PARTITIONS = ("a", "b")
ESCAPED_PARTITIONS = ("a/b", "ä ö", "x=y", None)
NARROW_DECIMAL = "decimal(7,2)"
WIDER = {"amount": "bigint", "price": "decimal(9,2)"}
"""The types that columns of the evolved table get."""
TYPES = {
    "n": "bigint",
    "words": "string",
    "bytes": "binary",
    "ratio": "float",
    "score": "double",
    "amount": "int",
    "total": "bigint",
    "born": "date",
    "happened": "timestamp",
    "flag": "boolean",
    "price": NARROW_DECIMAL,
    "whole": "decimal(18,0)",
    "exact": "decimal(38,10)",
    "items": "array<int>",
    "scores": "map<string,double>",
    "inner_row": "struct<a:int,b:string,c:double>",
    PARTITION: "string",
}
_NULL_EVERY = 7
_OTHERS: dict[str, list[Any]] = {
    NARROW_DECIMAL: [Decimal(text) for text in ("0.00", "-0.01", "99999.99", "-99999.99", "12.50")],
    "array<int>": [[], [1], [None, -7], [2**31 - 1, 0]],
    "map<string,double>": [[], [("a", 1.5)], [("", None), ("😀", 1e308)]],
    "struct<a:int,b:string,c:double>": [
        {"a": 1, "b": "a", "c": 1.5},
        {"a": None, "b": "😀", "c": None},
        {"a": -1, "b": None, "c": 100.0},
    ],
}


def row_of(number: int, types: dict[str, str], partitions: tuple[str | None, ...]) -> dict[str, Any]:
    """The row with this `n`: the values of each column follow one another from row to row."""
    row: dict[str, Any] = {"n": number}
    for position, (name, type_) in enumerate(types.items()):
        if name == PARTITION:
            row[name] = partitions[number % len(partitions)]
        elif name != "n":
            is_null = (number + position) % _NULL_EVERY == 0
            row[name] = None if is_null else _value(type_, number)
    return row


def _value(type_: str, number: int) -> Any:
    values = _OTHERS.get(type_) or SCALARS[type_]
    value = values[number % len(values)]
    # No log makes -0.0.
    return value + 0.0 if isinstance(value, float) else value
