"""Filters in each dialect of SQL."""

from __future__ import annotations

from collections.abc import Callable
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


def trino(type_: str, value: Any) -> str:
    """A literal of Trino's SQL."""
    if isinstance(value, datetime):
        return f"from_unixtime_nanos({micros(value)}000)"
    if isinstance(value, float):
        return f"{'REAL' if type_ == 'float' else 'DOUBLE'} '{value}'"
    return _common(type_, value)


def datafusion(type_: str, value: Any) -> str:
    """A literal of DataFusion's SQL."""
    if isinstance(value, datetime):
        return f"""arrow_cast({micros(value)}, 'Timestamp(Microsecond, Some("UTC"))')"""
    if isinstance(value, float):
        return f"CAST({value} AS {type_})"
    return _common(type_, value)


def clickhouse(type_: str, value: Any) -> str:
    """A literal of ClickHouse's SQL."""
    if isinstance(value, datetime):
        return f"fromUnixTimestamp64Micro(toInt64({micros(value)}), 'UTC')"
    if isinstance(value, date):
        return f"toDate32('{value}')"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, float):
        return f"to{'Float32' if type_ == 'float' else 'Float64'}({value})"
    return _common(type_, value)


def _common(type_: str, value: Any) -> str:
    """A literal as the SQL standard has it."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"CAST({value} AS {type_})"
    if isinstance(value, date):
        return f"DATE '{value}'"
    if isinstance(value, str):
        return f"'{value}'"
    return str(value)
