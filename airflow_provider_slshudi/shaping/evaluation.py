"""Computes expressions over a pull's logs: whole columns at a time, and which logs they cannot be computed for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_provider_slshudi.rows.casts import as_text
from airflow_provider_slshudi.shaping.functions import FUNCTIONS, Function
from airflow_provider_slshudi.shaping.grammar import Tree
from airflow_provider_slshudi.shaping.regex import group_text, groups_of

Mask = NDArray[np.bool_]
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
"""The type of the values of an expression, by its name."""
_WIDER = {pa.int32(): pa.int64(), pa.uint32(): pa.int64(), pa.float32(): pa.float64()}


@dataclass(frozen=True)
class Value:
    """The values of an expression, NULL where it failed: an array, or a scalar for all logs.

    Attributes:
        values: an Array or a Scalar.
        failed: which logs it cannot be computed for; None where it can for all.
    """

    values: Any
    failed: Mask | None = None


class Evaluation:
    """Computes expressions over some logs, each part that several of them share once.

    Args:
        logs: as `sls.decode` gives them, with all keys that the expressions name.
        column: gives a column of the pipeline by its name.
        trees: the expressions that are going to be computed, whose patterns then read a text once for all groups.
    """

    def __init__(self, logs: pa.Table, column: Callable[[str], Value], trees: tuple[Tree, ...] = ()) -> None:
        self._logs, self._column = logs, column
        self._groups = groups_by_pattern(trees) if trees else {}
        self._values: dict[Tree, Value] = {}

    def value(self, tree: Tree) -> Value:
        """The value of a checked tree (`grammar`)."""
        if tree[0] == "literal":
            return Value(pa.scalar(tree[1], ARROW[tree[2]]))
        if tree not in self._values:
            value = self._computed(tree)
            if value.failed is not None:
                # No value that was made of a failed one decides anything.
                values = self._spread(value.values)
                value = Value(pc.if_else(pa.array(value.failed), pa.scalar(None, values.type), values), value.failed)
            self._values[tree] = value
        return self._values[tree]

    def array(self, tree: Tree, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
        """The values as an array of a type, and which logs they cannot be computed for."""
        value = self.value(tree)
        values = self._spread(value.values)
        return (values if values.type == type_ else values.cast(type_)), value.failed

    def _computed(self, tree: Tree) -> Value:
        kind, name, *parts = tree
        if kind == "key":
            return self._key(name)
        if kind == "column":
            value = self._column(name)
            wider = _WIDER.get(value.values.type)
            return Value(value.values.cast(wider), value.failed) if wider else value
        if name in _OF_GROUPS:
            return self._group(name, *parts)
        if name in _SPECIAL:
            return _SPECIAL[name](self, [self.value(part) for part in parts])
        function = FUNCTIONS[name]
        literals = [kind.endswith(("!", "!?", "!*")) for kind in function.takes]
        literals += literals[-1:] * (len(parts) - len(literals))
        arguments = [part[1] if literal else self.value(part) for part, literal in zip(parts, literals, strict=False)]
        return self._called(function, arguments)

    def _group(self, name: str, text: Tree, pattern: Tree, group: Tree = ("literal", 1, "bigint")) -> Value:
        """A group of a pattern; all groups that the expressions want of it are found at once."""
        value = self.value(text)
        numbers = self._groups.get((text, pattern[1]), ())
        numbers = numbers if group[1] in numbers else (group[1],)
        shared: Tree = ("groups", text, pattern[1], numbers)
        if shared not in self._values:
            self._values[shared] = Value(groups_of(self._spread(value.values), pattern[1], numbers))
        array, groups = self._spread(value.values), self._values[shared].values
        if name == "regexp_extract":
            return Value(group_text(array, groups, group[1]), value.failed)
        text_found = pc.struct_field(groups, f"g{group[1]}")
        failed = pc.and_(pc.is_null(groups), pc.is_valid(array)).to_numpy(zero_copy_only=False)
        nothing = pa.scalar(None, pa.string())
        values = pc.if_else(pc.equal(text_found, ""), nothing, text_found)
        return Value(values, either(value.failed, failed if failed.any() else None))

    def _key(self, name: str) -> Value:
        column = self._logs[name]
        values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if not pa.types.is_binary(values.type):
            return Value(values.cast(_WIDER[values.type]))
        text = as_text(values)
        failed = None
        if text.null_count != values.null_count:
            failed = pc.and_(pc.is_null(text), pc.is_valid(values)).to_numpy(zero_copy_only=False)
        return Value(text, failed)

    def _called(self, function: Function, arguments: Sequence[Any]) -> Value:
        inputs = [argument for argument in arguments if isinstance(argument, Value)]
        values = [argument.values if isinstance(argument, Value) else argument for argument in arguments]
        if function.on_arrays:
            values = [self._spread(value) if isinstance(value, pa.Scalar) else value for value in values]
        result = _halved(function.kernel, values, self._logs.num_rows)
        broken = None
        if isinstance(result, tuple):
            result, broken = result
            broken = broken if broken.any() else None
        elif not function.gives_null:
            broken = self._lost(result, [item.values for item in inputs])
        failed = reduce(either, [item.failed for item in inputs], broken)
        return Value(result, failed)

    def _lost(self, result: Any, inputs: Sequence[Any]) -> Mask | None:
        """Where a result is NULL though no input is."""
        nulls = result.null_count if isinstance(result, pa.Array) else (0 if result.is_valid else self._logs.num_rows)
        if not nulls or any(isinstance(item, pa.Scalar) and not item.is_valid for item in inputs):
            return None
        if max((item.null_count for item in inputs if isinstance(item, pa.Array)), default=0) == nulls:
            # A NULL input makes a NULL: these are they, unless NULLs of two inputs differ, which then are more.
            return None
        lost = pc.is_null(self._spread(result)).to_numpy(zero_copy_only=False)
        for item in inputs:
            if isinstance(item, pa.Array) and item.null_count:
                lost &= item.is_valid().to_numpy(zero_copy_only=False)
        return lost if lost.any() else None

    def _spread(self, values: Any) -> pa.Array:
        if isinstance(values, pa.Scalar):
            return (
                pa.repeat(values, self._logs.num_rows)
                if values.is_valid
                else pa.nulls(self._logs.num_rows, values.type)
            )
        return values

    def _masks(self, value: Value) -> tuple[Mask, Mask]:
        """Where a condition is true, and where it is false."""
        array = self._spread(value.values)
        if pa.types.is_null(array.type):
            nothing = np.zeros(len(array), np.bool_)
            return nothing, nothing
        true = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        return true, ~pc.fill_null(array, True).to_numpy(zero_copy_only=False)

    def _and(self, values: Sequence[Value]) -> Value:
        return self._joined(pc.and_kleene, values, 1)

    def _or(self, values: Sequence[Value]) -> Value:
        return self._joined(pc.or_kleene, values, 0)

    def _joined(self, kernel: Callable[..., Any], values: Sequence[Value], which: int) -> Value:
        """AND or OR: where one side decides, it does not matter whether the other can be computed."""
        one, other = (_boolean(value.values) for value in values)
        result = kernel(one, other)
        failed = either(values[0].failed, values[1].failed)
        if failed is not None:
            decided = np.zeros(self._logs.num_rows, np.bool_)
            for side, value in zip((one, other), values, strict=True):
                decides = self._masks(Value(side))[which]
                decided |= decides if value.failed is None else decides & ~value.failed
            failed = failed & ~decided
        return Value(result, failed if failed is not None and failed.any() else None)

    def _if(self, values: Sequence[Value]) -> Value:
        condition, then, otherwise = values
        chosen = pc.fill_null(_boolean(condition.values), False)
        result = pc.if_else(chosen, then.values, otherwise.values)
        failed = condition.failed
        if then.failed is not None or otherwise.failed is not None:
            true = self._spread(chosen).to_numpy(zero_copy_only=False)
            for part, taken in ((then, true), (otherwise, ~true)):
                if part.failed is not None:
                    failed = either(failed, part.failed & taken)
        return Value(result, failed)

    def _coalesce(self, values: Sequence[Value]) -> Value:
        result = pc.coalesce(*[value.values for value in values])
        failed: Mask | None = None
        open_ = np.ones(self._logs.num_rows, np.bool_)
        for value in values if any(value.failed is not None for value in values) else ():
            if value.failed is not None:
                failed = either(failed, value.failed & open_)
                open_ = open_ & ~value.failed
            open_ = open_ & self._spread(value.values).is_null().to_numpy(zero_copy_only=False)
        if failed is not None:
            result = pc.if_else(pa.array(failed), pa.scalar(None, result.type), result)
        return Value(result, failed)


_OF_GROUPS = ("regexp_extract", "log_field")
_SPECIAL = {"and": Evaluation._and, "or": Evaluation._or, "if": Evaluation._if, "coalesce": Evaluation._coalesce}


@lru_cache(64)
def groups_by_pattern(trees: tuple[Tree, ...]) -> dict[tuple[Tree, str], tuple[int, ...]]:
    """The groups that expressions want of each text by each pattern."""
    numbers: dict[tuple[Tree, str], set[int]] = {}

    def walk(tree: Tree) -> None:
        if tree[0] != "call":
            return
        if tree[1] in _OF_GROUPS:
            text, pattern, group = (*tree[2:], ("literal", 1, "bigint"))[:3]
            numbers.setdefault((text, pattern[1]), set()).add(group[1])
        for part in tree[2:]:
            walk(part)

    for tree in trees:
        walk(tree)
    return {place: tuple(sorted(groups)) for place, groups in numbers.items()}


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    """Where one of two masks is set; None stands for an empty one."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _boolean(values: Any) -> Any:
    return pa.scalar(None, pa.bool_()) if isinstance(values, pa.Scalar) and not values.is_valid else values


def _halved(kernel: Any, arguments: Sequence[Any], rows: int) -> Any:
    """A kernel's result, NULL where it raises; quick if few values do."""
    try:
        return kernel(*arguments)
    except pa.ArrowInvalid:
        arrays = [place for place, value in enumerate(arguments) if isinstance(value, pa.Array)]
        if rows <= 1 or not arrays:
            result = kernel(
                *[
                    pa.nulls(len(value), value.type)
                    if isinstance(value, pa.Array)
                    else pa.scalar(None, value.type)
                    if isinstance(value, pa.Scalar)
                    else value
                    for value in arguments
                ]
            )
            return result
        middle = rows // 2
        parts = [
            _halved(
                kernel, [value.slice(*bounds) if isinstance(value, pa.Array) else value for value in arguments], length
            )
            for bounds, length in (((0, middle), middle), ((middle,), rows - middle))
        ]
        return pa.concat_arrays(parts)
