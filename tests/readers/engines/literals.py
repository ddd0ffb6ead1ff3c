"""Filters in each dialect of SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from tests.differential.filters import ducks_literal, sparks_literal
from tests.readers.canonical import micros
from tests.readers.questions import Question

Literal = Callable[[str, Any], str]
duckdb, spark = ducks_literal, sparks_literal


def where(question: Question | None, literal: Literal, quote: str = '"') -> str:
    """The WHERE clause; empty without a filter."""
    if question is None:
        return ""
    return f" WHERE {quote}{question.column}{quote} {question.how} {literal(question.type, question.value)}"


@dataclass(frozen=True)
class Dialect:
    """How one dialect of SQL writes literals; each field is a format of a literal's text.

    Attributes:
        moment: of a time's microseconds since 1970.
        day: of a day as ISO has it.
        octets: of bytes in hexadecimal digits.
        real, double: of floating-point numbers.
    """

    moment: str
    day: str
    octets: str
    real: str
    double: str

    def __call__(self, type_: str, value: Any) -> str:
        """The literal of a value; a `datetime` is a `date`, and a `bool` an `int`, to Python."""
        if isinstance(value, datetime):
            return self.moment.format(micros(value))
        if isinstance(value, date):
            return self.day.format(value)
        if isinstance(value, bytes):
            return self.octets.format(value.hex())
        if isinstance(value, float):
            return (self.real if type_ == "float" else self.double).format(value)
        if isinstance(value, Decimal):
            return f"CAST({value} AS {type_})"
        if isinstance(value, str):
            return f"'{value}'"
        return str(value).lower()


trino = Dialect("from_unixtime_nanos({}000)", "DATE '{}'", "X'{}'", "REAL '{}'", "DOUBLE '{}'")
datafusion = Dialect(
    """arrow_cast({}, 'Timestamp(Microsecond, Some("UTC"))')""",
    "DATE '{}'",
    "X'{}'",
    "CAST({} AS float)",
    "CAST({} AS double)",
)
clickhouse = Dialect(
    "fromUnixTimestamp64Micro(toInt64({}), 'UTC')",
    "toDate32('{}')",
    "unhex('{}')",
    "toFloat32({})",
    "toFloat64({})",
)
