"""The language of `expr` and `where`: expressions as Spark's SQL writes them, made a plain tree before anything runs.

sqlglot reads the text; the tree is tuples of names and numbers, so executors need no parser. A name is a column of the
pipeline, with the column's type; key('name') is a key of the log, which is text. Every expression has one type, and
nothing converts without a CAST: logs are text, and comparing texts that look like numbers would be silently wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow_provider_slshudi.config.datatypes import parse_type
from airflow_provider_slshudi.shaping.patterns import group_of

if TYPE_CHECKING:
    from sqlglot import exp

Tree = tuple[Any, ...]
"""`("key", name)`, `("column", name)`, `("literal", value, type)` or `("call", function, argument, ...)`."""
TYPES = {
    "string": "string",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "date": "date",
}
"""The type within an expression of a column's type; others have none."""
FITTING = {
    "bigint": ("int", "bigint", "float", "double"),
    "double": ("float", "double"),
    "boolean": ("boolean",),
    "timestamp": ("timestamp",),
    "date": ("date",),
}
"""The types that a column may have whose expression is no text; a text converts as a log's does."""
_NUMBERS = {"__time__", "__time_ns_part__"}
_PREDICATES = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "Like", "ILike", "RegexpLike", "Between", "In", "Is")
_INNER = {"negative", "to_double", "is_null"}
_OWN = {"__topic__", "__source__", *_NUMBERS}
_HIDDEN = {"__cursor__", "__index__", "__rest__"}
_LONGEST = 10_000
_DEEPEST = 100
_OPERATORS = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "IntDiv": "div",
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "And": "and",
    "Or": "or",
    "Like": "like",
    "ILike": "ilike",
    "RegexpLike": "rlike",
    "DPipe": "concat",
}

_ARGUMENTS = {
    "Column": {"this", "table"},
    "Literal": {"this", "is_string"},
    "Like": {"this", "expression", "negate"},
    "ILike": {"this", "expression", "negate"},
    "Between": {"this", "low", "high"},
    "In": {"this", "expressions", "query"},
    "If": {"this", "true", "false"},
    "Case": {"this", "ifs", "default"},
    "Cast": {"this", "to"},
    "TryCast": {"this", "to"},
    "Anonymous": {"this", "expressions"},
}
"""What sqlglot may tell of each kind of node; with anything else it would mean something that the tree does not say."""
_FLAGS = {"safe", "typed", "_type"}


@dataclass(frozen=True)
class Expression:
    """An expression that was checked.

    Attributes:
        tree: what is to be computed.
        type: of its value: string, bigint, double, boolean, timestamp or date.
        keys: the keys of logs that it names, in order.
        columns: the columns that it names, in order.
    """

    tree: Tree
    type: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]


def parse(text: str, columns: Mapping[str, str]) -> Expression:
    """An expression, checked.

    Args:
        text: the SQL.
        columns: the types of the pipeline's columns by their names, as the file has them.

    Raises:
        ValueError: it is none, names what is not there, or its types do not go together; the message says what to do.
    """
    reader = _Reader(columns)
    tree, type_ = reader.read(_parsed(text))
    if type_ == "null":
        raise ValueError("it is NULL for every log")
    return Expression(tree, type_, tuple(reader.keys), tuple(reader.columns))


@cache
def _parser() -> Any:
    """Spark's dialect, in which every function stays as it is written."""
    from sqlglot.dialects.spark import Spark

    class Parser(Spark.Parser):  # type: ignore[valid-type, misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
        }

    return type("Expressions", (Spark,), {"Parser": Parser})


def _parsed(text: str) -> exp.Expression:
    import sqlglot
    from sqlglot.errors import ParseError, TokenError

    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} characters; {_LONGEST} are the most")
    try:
        (read, *more) = sqlglot.parse(text, dialect=_parser())
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f"line {first.get('line', 1)}, column {first.get('col', 1)}"
        raise ValueError(f"{where}: {_words(first)}; expected an expression as Spark's SQL writes it") from None
    except (TokenError, RecursionError):
        raise ValueError("it does not end: a quote or a bracket is open") from None
    if read is None or more:
        raise ValueError("expected one expression, without `;`")
    _require_whole([token.token_type.name for token in sqlglot.tokenize(text, dialect=_parser())])
    return cast("exp.Expression", read)


def _require_whole(kinds: list[str]) -> None:
    """Raises ValueError for tokens that sqlglot passes over, and Spark does not."""
    if kinds.count("L_PAREN") != kinds.count("R_PAREN"):
        raise ValueError("a bracket is open")
    if "SEMICOLON" in kinds:
        raise ValueError("expected one expression, without `;`")
    for first, second in itertools.pairwise(kinds):
        if (first in ("L_PAREN", "COMMA") and second == "COMMA") or (first == "COMMA" and second == "R_PAREN"):
            raise ValueError("an argument is empty: a comma has nothing beside it")
    for place, kind in enumerate(kinds):
        if kind == "ALIAS" and kinds[place + 2 : place + 3] != ["R_PAREN"]:
            raise ValueError("CAST takes a value and the name of a type: CAST(x AS int)")


def _words(error: Mapping[str, Any]) -> str:
    description = str(error.get("description", "it cannot be read")).split(" for <class")[0]
    return f"{description} at {error['highlight']!r}" if error.get("highlight") else description


class _Reader:
    """Makes the tree of what was parsed, and checks its types."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._types = columns
        self.keys: dict[str, None] = {}
        self.columns: dict[str, None] = {}
        self._depth = 0

    def read(self, node: exp.Expression) -> tuple[Tree, str]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"it is nested deeper than {_DEEPEST} times")
        kind = type(node).__name__
        method = getattr(self, f"_{kind.lower()}", None)
        said = {name for name, value in node.args.items() if value not in (None, False, [])}
        if said - _ARGUMENTS.get(kind, {"this", "expression"}) - _FLAGS:
            method = None
        elif kind in _OPERATORS:
            method = self._operator
        if kind in _PREDICATES:
            _require_brackets(node)
        if method is None:
            raise ValueError(f"`{_text(node)}` is not part of the language")
        result: tuple[Tree, str] = method(node)
        self._depth -= 1
        return result

    def _operator(self, node: exp.Expression) -> tuple[Tree, str]:
        result = self._call(_OPERATORS[type(node).__name__], [node.this, node.expression])
        return self._checked("not", [result]) if node.args.get("negate") else result

    def _paren(self, node: exp.Expression) -> tuple[Tree, str]:
        return self.read(node.this)

    def _column(self, node: exp.Expression) -> tuple[Tree, str]:
        if node.args.get("table") is not None:
            raise ValueError(f"`{_text(node)}`: a key with a dot in its name is written within backticks")
        name = node.name
        if name in self._types:
            type_ = TYPES.get(self._types[name])
            if type_ is None:
                raise ValueError(
                    f"column {name} is {self._types[name]}, which expressions do not take: key('...') is the text "
                    "that the log has, and get_json_object(text, '$.path') a part of it"
                )
            self.columns[name] = None
            return ("column", name), type_
        if name in _OWN or name.startswith("__tag__:"):
            return self._key(name)
        raise ValueError(f"{name} is no column here; key('{name}') is the text of the log's key of that name")

    def _key(self, name: str) -> tuple[Tree, str]:
        if name in _HIDDEN:
            raise ValueError(f"{name} is no key of a log")
        self.keys[name] = None
        return ("key", name), "bigint" if name in _NUMBERS else "string"

    def _literal(self, node: exp.Expression) -> tuple[Tree, str]:
        if node.args["is_string"]:
            return _literal(node.this, "string")
        try:
            number = int(node.this)
        except ValueError:
            try:
                return _literal(float(node.this), "double")
            except ValueError:
                raise ValueError(f"{node.this} is no number that an expression takes") from None
        if number >= 2**63:
            raise ValueError(f"{number} is no bigint")
        return _literal(number, "bigint")

    def _rawstring(self, node: exp.Expression) -> tuple[Tree, str]:
        return _literal(node.this, "string")

    def _boolean(self, node: exp.Expression) -> tuple[Tree, str]:
        return _literal(bool(node.this), "boolean")

    def _null(self, _: exp.Expression) -> tuple[Tree, str]:
        return _NOTHING

    def _neg(self, node: exp.Expression) -> tuple[Tree, str]:
        tree, type_ = self.read(node.this)
        if tree[0] == "literal" and type_ in ("bigint", "double"):
            return _literal(-tree[1], type_)
        return self._checked("negative", [(tree, type_)])

    def _not(self, node: exp.Expression) -> tuple[Tree, str]:
        return self._call("not", [node.this])

    def _is(self, node: exp.Expression) -> tuple[Tree, str]:
        if type(node.expression).__name__ != "Null":
            raise ValueError(f"`{_text(node)}`: only IS NULL and IS NOT NULL are part of the language")
        return self._call("is_null", [node.this])

    def _between(self, node: exp.Expression) -> tuple[Tree, str]:
        value = self.read(node.this)
        bounds = [
            self._checked(sign, [value, self.read(node.args[end])]) for sign, end in ((">=", "low"), ("<=", "high"))
        ]
        return self._checked("and", bounds)

    def _in(self, node: exp.Expression) -> tuple[Tree, str]:
        if not node.expressions or node.args.get("query") is not None:
            raise ValueError(f"`{_text(node)}`: IN takes a list of values, like IN ('GET', 'POST')")
        return self._call("in", [node.this, *node.expressions])

    def _if(self, node: exp.Expression) -> tuple[Tree, str]:
        parts = [node.this, node.args["true"], node.args.get("false")]
        if parts[2] is None:
            raise ValueError("if takes a condition and two values: if(n > 0, 'some', 'none')")
        return self._checked("if", [self.read(part) for part in parts])

    def _case(self, node: exp.Expression) -> tuple[Tree, str]:
        subject = None if node.this is None else self.read(node.this)
        default = node.args.get("default")
        result = _NOTHING if default is None else self.read(default)
        for branch in reversed(node.args["ifs"]):
            condition = self.read(branch.this)
            if subject is not None:
                condition = self._checked("=", [subject, condition])
            result = self._checked("if", [condition, self.read(branch.args["true"]), result])
        return result

    def _trycast(self, node: exp.Expression) -> tuple[Tree, str]:
        return self._cast(node)

    def _cast(self, node: exp.Expression) -> tuple[Tree, str]:
        text = node.args["to"].sql(dialect="spark").lower()
        try:
            type_ = str(parse_type(text))
        except ValueError:
            type_ = ""
        if type_ not in TYPES or type_ == "float":
            raise ValueError(f"`{_text(node)}`: CAST makes string, int, bigint, double, boolean, timestamp or date")
        how = "try_cast" if node.args.get("safe") else "cast"
        return self._checked(how, [self.read(node.this), _literal(type_, "string")])

    def _anonymous(self, node: exp.Expression) -> tuple[Tree, str]:
        name = str(node.this).lower()
        if name == "key":
            names = [argument.this for argument in node.expressions if type(argument).__name__ == "Literal"]
            if len(names) != 1 or len(node.expressions) != 1:
                raise ValueError("key takes the name of one of the log's keys: key('status')")
            return self._key(str(names[0]))
        if name == "log_field":
            return self._log_field(node.expressions)
        name = f"{name}()" if name in _INNER else name
        return self._call(_ALIASES.get(name, name), node.expressions)

    def _log_field(self, nodes: list[exp.Expression]) -> tuple[Tree, str]:
        """A field of a format that has a name: a group of its pattern, that has to match."""
        names = [node.this for node in nodes[1:] if type(node).__name__ == "Literal"]
        if len(names) != 2 or len(nodes) != 3:
            raise ValueError("log_field takes a text, a format and a field: log_field(line, 'access', 'status')")
        pattern, group = group_of(*names)
        return self._checked("log_field", [self.read(nodes[0]), _literal(pattern, "string"), _literal(group, "bigint")])

    def _call(self, function: str, nodes: list[exp.Expression]) -> tuple[Tree, str]:
        return self._checked(function, [self.read(node) for node in nodes])

    def _checked(self, function: str, arguments: list[tuple[Tree, str]]) -> tuple[Tree, str]:
        from airflow_provider_slshudi.shaping.functions import FUNCTIONS

        if function not in FUNCTIONS:
            named = ", ".join(name for name in FUNCTIONS if name.isidentifier() and name not in _INNER)
            raise ValueError(f"there is no function {function}; there are key, {named}")
        trees, type_ = FUNCTIONS[function].signature(function, arguments)
        return ("call", function, *trees), type_


def _require_brackets(node: exp.Expression) -> None:
    """Raises ValueError where a comparison is compared: Spark reads them from left to right, sqlglot does not."""
    for operand in (node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")):
        if operand is not None and type(operand).__name__ in (*_PREDICATES, "Not"):
            raise ValueError(f"put brackets around `{_text(operand)}`, which is compared")


def _literal(value: Any, type_: str) -> tuple[Tree, str]:
    # With its type: 1, 1.0 and true are equal in Python.
    return ("literal", value, type_), type_


_NOTHING = _literal(None, "null")
_ALIASES = {
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "substr": "substring",
    "ceiling": "ceil",
    "char_length": "length",
    "regexp_like": "rlike",
    "regexp": "rlike",
    "mod": "%",
    "dayofmonth": "day",
}


def _text(node: exp.Expression) -> str:
    return str(node.sql(dialect="spark"))
