"""The values of columns, from a log's keys or by expressions, before the rules of misfits are applied."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.rows.convert import ColumnSpec, convert, misfits, without_texts
from airflow_provider_slshudi.rows.documents import at_path
from airflow_provider_slshudi.shaping.evaluation import ARROW, Evaluation, Mask, Value, either
from airflow_provider_slshudi.shaping.grammar import Tree
from airflow_provider_slshudi.shaping.kernels import within_int


class Input:
    """A column's values: as the logs have them, and as the column's type has them.

    Attributes:
        after: in the column's type; NULL where a value is missing, does not fit or cannot be computed.
        failed: the logs for which the column's expression cannot be computed; None where there are none.
    """

    def __init__(
        self, source: pa.Array, after: pa.Array, failed: Mask | None = None, before: pa.Array | None = None
    ) -> None:
        self.after, self.failed = after, failed
        self._source, self._before = source, before

    @cached_property
    def before(self) -> pa.Array:
        """The values as text (binary), NULL where there is none; where an expression failed, what it was to be of."""
        valid = self.after if self._before is None else self._before
        if self._before is not None and self.failed is None:
            return self._before
        some = pc.is_valid(valid)
        if self.failed is not None:
            some = pc.or_(some, pa.array(self.failed))
        source = pc.fill_null(self._source, b"")
        if self._before is not None:
            source = pc.coalesce(self._before, source)
        return pc.if_else(some, source, pa.scalar(None, pa.binary()))

    @property
    def fits(self) -> bool:
        """Whether all values surely fit their column, unless it wants a value for every log."""
        return self._before is None and self.failed is None


class Inputs:
    """The inputs of columns for some logs, each made once it is asked for.

    Args:
        specs: the columns.
        logs: as `sls.decode` gives them, with the keys of all columns and conditions.
        trees: conditions that are going to be asked.
    """

    def __init__(self, specs: Sequence[ColumnSpec], logs: pa.Table, trees: tuple[Tree, ...] = ()) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._logs = logs
        self._inputs: dict[str, Input] = {}
        own = tuple(spec.tree for spec in specs if spec.tree is not None)
        # By a weak reference: a circle would keep each pull's logs until Python's collector comes by.
        here = weakref.ref(self)
        self._evaluation = Evaluation(logs, lambda name: _typed_in(here, name), (*own, *trees))

    def of(self, name: str) -> Input:
        """The input of a column."""
        if name not in self._inputs:
            spec = self._specs[name]
            self._inputs[name] = self._of_log(spec) if spec.tree is None else self._of_expression(spec)
        return self._inputs[name]

    def kept(self, condition: Tree) -> Mask | None:
        """The logs that a condition keeps, None where it keeps all; it keeps those for which it cannot be computed."""
        values, failed = self._evaluation.array(condition, pa.bool_())
        true: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        if failed is not None:
            true = true | failed
        return None if true.all() else true

    def met(self, condition: Tree) -> Mask:
        """The logs for which a condition is true and can be computed."""
        values, failed = self._evaluation.array(condition, pa.bool_())
        true: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        return true if failed is None else true & ~failed

    def _of_log(self, spec: ColumnSpec) -> Input:
        source = before = as_binary(self._logs[spec.key])
        inputs = before
        if spec.path is not None:
            inputs, before = at_path(before, spec.path)
        if spec.null_texts:
            inputs, before = (without_texts(values, spec.null_texts) for values in (inputs, before))
        return Input(source, convert(inputs, spec), None, before)

    def _of_expression(self, spec: ColumnSpec) -> Input:
        assert spec.tree is not None  # noqa: S101
        source = as_binary(self._logs[spec.key])
        if spec.computed == "string":
            text, failed = self._evaluation.array(spec.tree, pa.string())
            before = text.cast(pa.binary())
            if spec.null_texts:
                before = without_texts(before, spec.null_texts)
            return Input(source, convert(before, spec), failed, before)
        type_ = arrow_type(spec.type)
        values, failed = self._evaluation.array(spec.tree, ARROW[spec.computed])
        if values.type == type_:
            return Input(source, values, failed)
        narrow = (within_int(values) if pa.types.is_integer(type_) else values).cast(type_, safe=False)
        if narrow.null_count != values.null_count:
            lost = pc.and_(pc.is_null(narrow), pc.is_valid(values)).to_numpy(zero_copy_only=False)
            failed = either(failed, lost)
        return Input(source, narrow, failed)

    def typed(self, name: str) -> Value:
        """A column's values for an expression, which cannot be computed where one does not fit."""
        item, spec = self.of(name), self._specs[name]
        if item.fits or (spec.max_bytes is None and not misfits(item.before, item.after)):
            return Value(item.after)
        unfit = pc.and_(pc.is_null(item.after), pc.is_valid(item.before))
        if spec.max_bytes is not None:
            unfit = pc.or_(unfit, pc.fill_null(pc.greater(pc.binary_length(item.before), spec.max_bytes), False))
        mask: Mask = unfit.to_numpy(zero_copy_only=False)
        return Value(item.after, mask) if np.any(mask) else Value(item.after)


def _typed_in(inputs: weakref.ref[Inputs], name: str) -> Value:
    alive = inputs()
    assert alive is not None  # noqa: S101 - it is who asks
    return alive.typed(name)


def as_binary(column: pa.ChunkedArray) -> pa.Array:
    """A key's values as binary: a log's own time comes as a number, but columns are made from text."""
    values = flat(column)
    return values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())


def flat(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece; copied only if it has several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
