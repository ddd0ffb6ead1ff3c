"""Types, and values of each that readers have been wrong about."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

UTC = timezone.utc
NAN, INFINITY = float("nan"), float("inf")
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

TEXTS = [
    "",
    "a",
    "A",
    "b",
    "ab",
    "a\x00b",
    "z",
    "ß",
    "é",
    "e\u0301",
    "\uffee",
    "😀",
    "%",
    "a%b",
    "__null__",
    "x" * 5000,
]
BINARIES = [b"", b"\x00", b"a", b"\x7f", b"\x80", b"\xff\x00", b"\xff" * 5000]
FLOATS = [0.0, -0.0, 1.5, -1.5, NAN, INFINITY, -INFINITY, 100.0]
# No log makes -0.0, but a filter may name it.
DOUBLES = [*FLOATS, 1e308, -1e308, 5e-324]
INTS = [0, 1, -1, 7, 10, 9, 100, 2**31 - 1, -(2**31)]
BIGINTS = [*INTS, 2**63 - 1, -(2**63), 2**53 + 1]
DATES = [
    *(date(1, 1, 1), date(1500, 2, 28), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(1970, 1, 1)),
    *(date(2025, 12, 30), date(2026, 1, 2), date(2026, 2, 3), date(9999, 12, 31)),
]
TIMES = [
    *(
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 4, 23, 59, 59, 999999, UTC),
        datetime(1883, 11, 18, 12, tzinfo=UTC),
    ),
    *(datetime(1899, 12, 31, 23, 59, 59, 999999, UTC), _FIRST, _FIRST - timedelta(microseconds=1)),
    *(
        datetime(2026, 1, 1, 23, 30, tzinfo=UTC),
        datetime(2026, 1, 2, 0, 30, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    ),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
]
DECIMALS = {
    "decimal(9,2)": [Decimal(text) for text in ("0.00", "0.01", "-0.01", "9999999.99", "-9999999.99", "12.50")],
    "decimal(18,0)": [Decimal(text) for text in ("0", "1", "-1", "999999999999999999", "-999999999999999999")],
    "decimal(38,10)": [
        Decimal(text)
        for text in ("0.0000000000", "0.0000000001", "-9999999999999999999999999999.9999999999", "7.5000000000")
    ],
}
SCALARS: dict[str, list[Any]] = {
    "string": TEXTS,
    "binary": BINARIES,
    "float": FLOATS,
    "double": DOUBLES,
    "int": INTS,
    "bigint": BIGINTS,
    "date": DATES,
    "timestamp": TIMES,
    "boolean": [True, False],
    **DECIMALS,
}
NESTED = ["array<int>", "map<string,double>", "struct<a:int,b:string,c:double>"]
TYPES = [*SCALARS, *NESTED]


def value(rng: random.Random, type_: str, few: list[Any] | None = None) -> Any:
    """A value of a type, often NULL; `few` are those that are drawn from most of the time."""
    if rng.random() < 0.15:
        return None
    if type_ in SCALARS:
        drawn = rng.choice(few if few and rng.random() < 0.8 else SCALARS[type_])
        return drawn + 0.0 if isinstance(drawn, float) else drawn
    if type_ == "array<int>":
        return [value(rng, "int") for _ in range(rng.randrange(3))]
    if type_ == "map<string,double>":
        return [(key, value(rng, "double")) for key in rng.sample(["a", "", "😀"], rng.randrange(3))]
    return {"a": value(rng, "int"), "b": value(rng, "string"), "c": value(rng, "double")}
