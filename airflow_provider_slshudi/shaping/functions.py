"""The functions of expressions: what each takes and gives.

A function means what Spark's of that name means (spark.apache.org/docs/3.5.9/api/sql/), but that Spark gives NULL, or
wraps around, where it cannot compute; docs/shaping.md lists what else differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.timepattern import parse_pattern
from airflow_provider_slshudi.config.values import parse_path
from airflow_provider_slshudi.shaping import kernels
from airflow_provider_slshudi.shaping.kernels import Kernel
from airflow_provider_slshudi.shaping.patterns import csv_pattern, pair_pattern
from airflow_provider_slshudi.shaping.regex import replaced, require_pattern, require_replacement

if TYPE_CHECKING:
    from airflow_provider_slshudi.shaping.grammar import Tree

Typed = tuple["Tree", str]
_INT = pa.int64()
_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
_LARGEST = 1_000_000
"""The largest number of letters or parts that a function is told."""
_NO_ZONES = ("localtime", "posixrules", "Factory")


@dataclass(frozen=True)
class Function:
    """A function of the language.

    Attributes:
        takes: the types of its arguments. `number` is bigint or double, `time` timestamp or date, `same` one type for
            all such arguments; `!` behind it asks for a literal, `?` for one that may be left out, `*` for any number.
        gives: its type; `same` is that of the arguments of this kind, `as` the one that the last argument names.
        kernel: computes it; None where `evaluation` does, since it does not need all its arguments everywhere.
        gives_null: whether NULL is a value that it may give for values.
        check: looks at its literal arguments; raises ValueError.
        on_arrays: whether the kernel takes no scalars.
    """

    takes: tuple[str, ...]
    gives: str
    kernel: Kernel | None = None
    gives_null: bool = False
    check: Callable[..., object] | None = None
    on_arrays: bool = False

    def signature(self, name: str, arguments: Sequence[Typed]) -> tuple[list[Tree], str]:
        """The arguments' trees, converted where numbers meet, and the type of the call; raises ValueError."""
        kinds = self._kinds(name, len(arguments))
        same = _common(name, [type_ for kind, (_, type_) in zip(kinds, arguments, strict=True) if kind[:4] == "same"])
        numbers = _common(name, [type_ for kind, (_, type_) in zip(kinds, arguments, strict=True) if kind == "number"])
        trees, literals = list["Tree"](), []
        for place, (kind, (tree, type_)) in enumerate(zip(kinds, arguments, strict=True), 1):
            expected = kind.rstrip("!")
            target = same if expected == "same" else numbers if expected == "number" else type_
            if not _fits(type_, expected):
                raise ValueError(
                    f"{name}: argument {place} is {_named(type_)}, and {_WORDS.get(expected, expected)} is expected"
                )
            if kind.endswith("!"):
                tree = _constant(name, place, tree, type_, target)
                literals.append(tree[1])
            elif type_ == "null":
                tree = ("literal", None, _type_of_null(name, expected, target))
            elif target == "double" and type_ == "bigint":
                tree = ("call", "to_double", tree)
            trees.append(tree)
        if self.check is not None:
            self.check(*literals)
        result = {"same": same, "number": numbers}.get(self.gives, self.gives)
        return trees, str(literals[-1]).replace("int", "bigint").replace("bigbig", "big") if result == "as" else result

    def _kinds(self, name: str, count: int) -> list[str]:
        kinds = [kind.rstrip("?*") for kind in self.takes]
        least = sum(not kind.endswith(("?", "*")) for kind in self.takes)
        if self.takes and self.takes[-1].endswith("*"):
            kinds += kinds[-1:] * (count - len(kinds))
        if not least <= count <= len(kinds):
            raise ValueError(
                f"{name} takes {least if least == len(kinds) else f'{least} to {len(kinds)}'} arguments, not {count}"
            )
        return kinds[:count]


def _constant(name: str, place: int, tree: Tree, type_: str, target: str) -> Tree:
    """A constant argument in the type of the others; raises ValueError."""
    if tree[0] != "literal" or tree[1] is None:
        raise ValueError(f"{name}: argument {place} must be a constant, which is not computed from the log")
    if target == "double" and type_ == "bigint":
        if int(float(tree[1])) != tree[1]:
            raise ValueError(f"{name}: no double is {tree[1]}")
        return ("literal", float(tree[1]), "double")
    if type_ == "bigint" and name != "in" and abs(tree[1]) > _LARGEST:
        raise ValueError(f"{name}: argument {place} is {tree[1]}, and {_LARGEST} is the largest")
    return tree


def _type_of_null(name: str, expected: str, target: str) -> str:
    """The type of a NULL that stands for an argument; raises ValueError where nothing says one."""
    type_ = target if expected in ("same", "number") else expected
    if type_ in ("null", "any", "time"):
        raise ValueError(f"{name}: NULL has no type there: CAST(NULL AS string) has one")
    return type_


_WORDS = {"number": "a number", "time": "a timestamp or a date"}


def _named(type_: str) -> str:
    return "text" if type_ == "string" else type_


def _fits(type_: str, expected: str) -> bool:
    if type_ == "null" or expected in ("same", "any"):
        return True
    kinds = {"number": ("bigint", "double"), "time": ("timestamp", "date")}
    return type_ in kinds.get(expected, (expected,))


def _common(name: str, types: Sequence[str]) -> str:
    """The one type of several arguments; numbers of both types are double."""
    distinct = {type_ for type_ in types if type_ != "null"}
    if distinct == {"bigint", "double"}:
        return "double"
    if len(distinct) > 1:
        first, second = sorted(distinct)[:2]
        raise ValueError(
            f"{name}: {_named(first)} and {_named(second)} do not go together; CAST(... AS {first}) converts"
        )
    return next(iter(distinct), "null")


_CASTS = {
    "string": ("bigint", "double", "boolean", "timestamp", "date"),
    "bigint": ("string", "double", "boolean", "timestamp"),
    "double": ("bigint", "boolean"),
    "boolean": ("string", "bigint", "double"),
    "timestamp": ("bigint", "date"),
    "date": ("string", "timestamp"),
}


@dataclass(frozen=True)
class _CastFunction(Function):
    """CAST, whose types have to go together."""

    def signature(self, name: str, arguments: Sequence[Typed]) -> tuple[list[Tree], str]:
        (value, from_), (target, _) = arguments
        to = "bigint" if target[1] == "int" else str(target[1])
        if from_ == "null":
            return [("literal", None, to), target], to
        if from_ != to and to not in _CASTS.get(from_, ()):
            hint = "; date_format(time, 'yyyy-MM-dd HH:mm:ss') writes one" if from_ == "timestamp" else ""
            raise ValueError(f"CAST: no {to} is made of {_named(from_)}{hint}")
        return [value, target], to


def _part(kernel: Kernel) -> Function:
    return Function(("time",), "bigint", lambda values: kernel(values).cast(_INT), on_arrays=True)


def _time_part(kernel: Kernel) -> Function:
    return Function(("timestamp",), "bigint", lambda values: kernel(values).cast(_INT), on_arrays=True)


def _compared(kernel: Kernel) -> Function:
    return Function(("same", "same"), "boolean", kernel)


def _on_texts(kernel: Kernel | None, *more: str, gives: str = "string", **options: Any) -> Function:
    return Function(("string", *more), gives, kernel, **options)


def _require_begin(begin: int, length: int | None = None) -> None:
    if begin < 0 and length is not None:
        raise ValueError("substring: a begin counted from the end takes no length; right(text, n) are the last n")


def _require_part(mark: str, place: int) -> None:
    if not mark or not place:
        raise ValueError(
            "split_part: the mark between the parts has characters, and parts count from 1, or from -1 at the end"
        )


def _require_text(text: str, _: str) -> None:
    if not text:
        raise ValueError("replace: the text that is replaced has characters")


def _require_unit(unit: str) -> None:
    if unit not in _UNITS:
        raise ValueError(f"date_trunc: {unit!r} is none of {', '.join(_UNITS)}")


def _require_zone(zone: str) -> None:
    """Raises ValueError for a zone that Python or Arrow does not know, or that each machine takes for another."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
        pc.local_timestamp(pa.array([0], pa.timestamp("us", tz=zone)))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{zone!r} is no IANA time zone like UTC or Asia/Shanghai") from None
    if zone in _NO_ZONES or zone.startswith(("right/", "posix/")):
        raise ValueError(f"{zone!r} is no time zone of a place: use one like Asia/Shanghai")


FUNCTIONS: dict[str, Function] = {
    "+": Function(("number", "number"), "number", kernels.added),
    "-": Function(("number", "number"), "number", kernels.subtracted),
    "*": Function(("number", "number"), "number", kernels.multiplied),
    "/": Function(("number", "number"), "double", kernels.quotient),
    "%": Function(("bigint", "bigint"), "bigint", kernels.remainder),
    "div": Function(("bigint", "bigint"), "bigint", kernels.whole_quotient),
    "negative": Function(("number",), "number", kernels.negated),
    "abs": Function(("number",), "number", kernels.absolute),
    "floor": Function(("double",), "bigint", lambda a: kernels.to_whole(pc.floor(a))),
    "ceil": Function(("double",), "bigint", lambda a: kernels.to_whole(pc.ceil(a))),
    "greatest": Function(("same", "same", "same*"), "same", kernels.extreme(kernels.greater)),
    "least": Function(("same", "same", "same*"), "same", kernels.extreme(kernels.less)),
    "to_double": Function(("bigint",), "double", kernels.to_double),
    "=": _compared(kernels.equal),
    "<>": _compared(kernels.not_equal),
    "<": _compared(kernels.less),
    "<=": _compared(kernels.at_most),
    ">": _compared(kernels.greater),
    ">=": _compared(kernels.at_least),
    "in": Function(("same", "same!*"), "boolean", kernels.within_set),
    "and": Function(("boolean", "boolean"), "boolean"),
    "or": Function(("boolean", "boolean"), "boolean"),
    "not": Function(("boolean",), "boolean", pc.invert),
    "is_null": Function(("any",), "boolean", pc.is_null),
    "if": Function(("boolean", "same", "same"), "same"),
    "coalesce": Function(("same", "same*"), "same"),
    "nullif": Function(("same", "same"), "same", kernels.unless_equal, gives_null=True),
    "cast": _CastFunction(("any", "string!"), "as", kernels.converted, on_arrays=True),
    "try_cast": _CastFunction(("any", "string!"), "as", kernels.converted, gives_null=True, on_arrays=True),
    "concat": Function(("string", "string*"), "string", kernels.concat),
    "upper": _on_texts(pc.utf8_upper),
    "lower": _on_texts(pc.utf8_lower),
    "trim": _on_texts(lambda text: pc.utf8_trim(text, characters=" ")),
    "ltrim": _on_texts(lambda text: pc.utf8_ltrim(text, characters=" ")),
    "rtrim": _on_texts(lambda text: pc.utf8_rtrim(text, characters=" ")),
    "length": _on_texts(lambda text: pc.utf8_length(text).cast(_INT), gives="bigint"),
    "substring": _on_texts(kernels.substring, "bigint!", "bigint!?", check=_require_begin),
    "left": _on_texts(kernels.left, "bigint!"),
    "right": _on_texts(kernels.right, "bigint!"),
    "replace": _on_texts(pc.replace_substring, "string!", "string!", check=_require_text),
    "split_part": _on_texts(kernels.split_part, "string!", "bigint!", check=_require_part, on_arrays=True),
    "startswith": _on_texts(pc.starts_with, "string!", gives="boolean"),
    "endswith": _on_texts(pc.ends_with, "string!", gives="boolean"),
    "contains": _on_texts(pc.match_substring, "string!", gives="boolean"),
    "like": _on_texts(pc.match_like, "string!", gives="boolean"),
    "ilike": _on_texts(lambda text, by: pc.match_like(text, by, ignore_case=True), "string!", gives="boolean"),
    "rlike": _on_texts(pc.match_substring_regex, "string!", gives="boolean", check=require_pattern),
    "regexp_extract": _on_texts(None, "string!", "bigint!?", check=lambda by, group=1: require_pattern(by, group)),
    # The two names behind the text become a pattern and a group (`grammar`).
    "log_field": _on_texts(None, "string!", "bigint!"),
    "pair": _on_texts(kernels.pair, "string!", check=pair_pattern, gives_null=True),
    "csv_field": _on_texts(kernels.csv_field, "bigint!", check=csv_pattern),
    "regexp_replace": _on_texts(replaced, "string!", "string!", check=require_replacement),
    "get_json_object": _on_texts(kernels.json_object, "string!", check=parse_path, gives_null=True, on_arrays=True),
    "to_timestamp": _on_texts(
        kernels.to_timestamp,
        "string!?",
        gives="timestamp",
        check=lambda by=None: by and parse_pattern(by),
        on_arrays=True,
    ),
    "to_date": _on_texts(
        kernels.to_date, "string!?", gives="date", check=lambda by=None: by and parse_pattern(by), on_arrays=True
    ),
    "timestamp_seconds": Function(("bigint",), "timestamp", kernels.from_count(1_000_000), on_arrays=True),
    "timestamp_millis": Function(("bigint",), "timestamp", kernels.from_count(1_000), on_arrays=True),
    "timestamp_micros": Function(("bigint",), "timestamp", kernels.from_count(1), on_arrays=True),
    "unix_seconds": Function(("timestamp",), "bigint", kernels.seconds, on_arrays=True),
    "unix_millis": Function(("timestamp",), "bigint", kernels.to_count("ms"), on_arrays=True),
    "unix_micros": Function(("timestamp",), "bigint", kernels.to_count("us"), on_arrays=True),
    "date_trunc": Function(
        ("string!", "timestamp"),
        "timestamp",
        kernels.truncated,
        check=_require_unit,
        on_arrays=True,
    ),
    "date_format": Function(("time", "string!"), "string", kernels.formatted, check=kernels.written_by, on_arrays=True),
    "from_utc_timestamp": Function(
        ("timestamp", "string!"), "timestamp", kernels.from_utc, check=_require_zone, on_arrays=True
    ),
    "to_utc_timestamp": Function(
        ("timestamp", "string!"), "timestamp", kernels.to_utc, check=_require_zone, on_arrays=True
    ),
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "dayofweek": _part(lambda values: pc.add(pc.day_of_week(values, week_start=7), 1)),
    "hour": _time_part(pc.hour),
    "minute": _time_part(pc.minute),
    "second": _time_part(pc.second),
}
