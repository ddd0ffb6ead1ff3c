"""Random filters, as trees that each engine has in its own words."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.differential.values import SCALARS

if TYPE_CHECKING:
    import polars as pl

COMPARED = ["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Compare:
    """A column beside a literal; `how` is one of COMPARED."""

    column: str
    type: str
    how: str
    value: Any


@dataclass(frozen=True)
class Among:
    """A column whose value is one of several."""

    column: str
    type: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class IsNull:
    """A column without a value."""

    column: str


@dataclass(frozen=True)
class StartsWith:
    """A text that begins so."""

    column: str
    text: str


@dataclass(frozen=True)
class Not:
    """The contrary, NULL where that is NULL."""

    of: Filter


@dataclass(frozen=True)
class Both:
    """Two filters with `and` or `or` between."""

    how: str
    one: Filter
    other: Filter


@dataclass(frozen=True)
class Said:
    """What only Spark's SQL says of a column."""

    column: str
    text: str


Filter = Compare | Among | IsNull | StartsWith | Not | Both | Said

_SAID = {
    "string": [
        "lower({c}) = 'a'",
        "length({c}) > 2",
        "{c} like '%b'",
        "{c} <=> 'a'",
        "upper({c}) >= 'B'",
        "substr({c}, 1, 1) = 'a'",
    ],
    "binary": ["length({c}) = 1", "{c} <=> X'61'", "hex({c}) = '61'"],
    "float": ["isnan({c})", "not isnan({c})", "{c} + 1 = 1", "{c} <=> float('NaN')", "abs({c}) = 1.5D", "{c} = -{c}"],
    "double": [
        "isnan({c})",
        "not isnan({c})",
        "{c} * 2 = 3",
        "{c} <=> double('NaN')",
        "nanvl({c}, 0D) = 0D",
        "{c} = -{c}",
    ],
    "int": [
        "{c} + 1 = 2",
        "{c} * -1 = 1",
        "cast({c} as string) = '9'",
        "{c} % 2 = 1",
        "{c} <=> 7",
        "cast({c} as double) > 6.5D",
    ],
    "bigint": [
        "{c} + 1 < 0",
        "10 - {c} = 1",
        "cast({c} as string) > '5'",
        "cast({c} as int) = -1",
        "from_unixtime({c}, 'ss') = '09'",
        "{c} <=> 9",
    ],
    "date": [
        "date_format({c}, 'MM') = '12'",
        "datediff(date'2026-01-03', {c}) = 1",
        "year({c}) < 1600",
        "{c} <=> date'1970-01-01'",
        "add_months({c}, 1) > date'2026-01-31'",
        "cast({c} as string) like '2026%'",
        "{c} > timestamp'2025-12-30 12:00:00'",
    ],
    "timestamp": [
        "date_format({c}, 'HH') = '00'",
        "cast({c} as date) = date'2026-01-01'",
        "hour({c}) = 23",
        "year({c}) = 1",
        "{c} <=> timestamp'1970-01-01 00:00:00'",
        "unix_micros({c}) < 0",
        "date_trunc('DAY', {c}) = timestamp'2026-01-02 00:00:00'",
        "{c} >= date'2026-01-02'",
        "to_utc_timestamp({c}, 'Europe/Berlin') > timestamp'2026-01-01 22:45:00'",
    ],
    "boolean": ["{c}", "not {c}", "{c} <=> true"],
    "decimal(9,2)": [
        "{c} + 1 = 1.01",
        "cast({c} as int) = 12",
        "{c} = 12.5",
        "{c} > 12",
        "cast({c} as string) = '0.01'",
    ],
    "decimal(18,0)": ["{c} * -1 = 1", "cast({c} as double) > 1e17", "{c} <=> 1"],
    "decimal(38,10)": ["{c} > 0.00000000005", "round({c}, 0) = 8"],
    "array<int>": ["size({c}) = 0", "array_contains({c}, 7)", "{c}[0] = 0"],
    "map<string,double>": ["{c}['a'] is null", "size({c}) = 1", "isnan({c}['a'])"],
    "struct<a:int,b:string,c:double>": [
        "{c}.a = 0",
        "{c}.b = 'a'",
        "{c}.b = '😀'",
        "isnan({c}.c)",
        "{c}.c > 100D",
        "{c}.c = 0D",
        "{c}.a is null",
        "not ({c}.b > 'b')",
    ],
}


def draw(rng: random.Random, columns: Mapping[str, str], depth: int = 2, said: bool = True) -> Filter:
    """A filter over columns, by their types; `said`: with what only Spark says."""
    if depth and rng.random() < 0.4:
        one, other = draw(rng, columns, depth - 1, said), draw(rng, columns, depth - 1, said)
        joined: list[Filter] = [Both("and", one, other), Both("or", one, other), Not(one)]
        return rng.choice(joined)
    name = rng.choice(list(columns))
    type_, drawn = columns[name], rng.random()
    if said and drawn < 0.25:
        return Said(name, rng.choice(_SAID[type_]).format(c=name))
    if drawn < 0.35 or type_ not in SCALARS:
        return IsNull(name) if rng.random() < 0.5 else Not(IsNull(name))
    if drawn < 0.5 and type_ != "boolean":
        return Among(name, type_, tuple(rng.choices(SCALARS[type_], k=rng.randrange(1, 4))))
    if type_ == "string" and drawn < 0.65:
        return StartsWith(name, rng.choice(["a", "", "x", "😀", "\uffee", "x" * 5000, "A"]))
    return Compare(name, type_, rng.choice(COMPARED), rng.choice(SCALARS[type_]))


def sql(found: Filter, literal: Any, starts: str = "startswith") -> str:
    """The filter in SQL whose literals `literal` makes of (type, value)."""
    match found:
        case Said(_, text):
            return text
        case Compare(column, type_, how, value):
            return f"{column} {how} {literal(type_, value)}"
        case Among(column, type_, values):
            return f"{column} in ({', '.join(literal(type_, value) for value in values)})"
        case IsNull(column):
            return f"{column} is null"
        case StartsWith(column, text):
            return f"{starts}({column}, {literal('string', text)})"
        case Not(of):
            return f"not ({sql(of, literal, starts)})"
        case Both(how, one, other):
            return f"(({sql(one, literal, starts)}) {how} ({sql(other, literal, starts)}))"


def sparks_literal(type_: str, value: Any) -> str:
    """A literal of Spark's SQL."""
    if type_ == "string":
        return "'" + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in value) + "'"
    if type_ == "binary":
        return f"X'{value.hex()}'"
    if type_ in ("float", "double"):
        return f"{type_}('{_number(value)}')"
    if isinstance(value, datetime):
        return f"timestamp_micros({micros(value)}L)"
    if isinstance(value, date):
        return f"date'{value.year:04}-{value.month:02}-{value.day:02}'"
    if isinstance(value, Decimal):
        return f"cast('{value}' as {type_})"
    if isinstance(value, bool):
        return str(value).lower()
    return f"({value}L)" if value >= -(2**63) + 1 else "(-9223372036854775807L - 1L)"


def ducks_literal(type_: str, value: Any) -> str:
    """A literal of DuckDB's SQL."""
    if type_ == "string":
        return "(" + " || ".join(f"'{part}'" for part in value.split("\x00")).replace(" || ", " || chr(0) || ") + ")"
    if type_ == "binary":
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if type_ in ("float", "double"):
        return f"'{_number(value)}'::{type_}"
    if isinstance(value, datetime):
        return f"make_timestamptz({micros(value)})"
    if isinstance(value, date):
        return f"DATE '{value.year:04}-{value.month:02}-{value.day:02}'"
    if isinstance(value, Decimal):
        return f"'{value}'::{type_}"
    return f"'{value}'::{type_}"


def polars_expression(found: Filter, types: Mapping[str, pl.DataType]) -> pl.Expr:
    """The filter as Polars has it."""
    import polars as pl

    match found:
        case Compare(column, _, how, value):
            left, right = pl.col(column), pl.lit(value, types[column])
            return {
                "=": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
            }[how]
        case Among(column, _, values):
            expressions = [pl.col(column) == pl.lit(value, types[column]) for value in values]
            return pl.any_horizontal(expressions)
        case IsNull(column):
            return pl.col(column).is_null()
        case StartsWith(column, text):
            return pl.col(column).str.starts_with(text)
        case Not(of):
            return ~polars_expression(of, types)
        case Both(how, one, other):
            left, right = polars_expression(one, types), polars_expression(other, types)
            return left & right if how == "and" else left | right
    raise TypeError(found)


def micros(value: datetime) -> int:
    """Microseconds since 1970."""
    since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))


def drawn(rng: random.Random, columns: Mapping[str, str], count: int, said: bool = True) -> Sequence[Filter]:
    """So many filters."""
    return [draw(rng, columns, said=said) for _ in range(count)]
