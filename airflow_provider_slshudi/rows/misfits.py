"""Logs that do not fit: which, why, and by which rule; costs nothing if all logs fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airflow_provider_slshudi.config.columns import REST
from airflow_provider_slshudi.exceptions import ValueMisfit, reason_text
from airflow_provider_slshudi.rows.casts import as_text
from airflow_provider_slshudi.rows.convert import ColumnSpec, misfits

EXAMPLES = 3
"""The most misfits that a message shows."""

SHOWN = 100
"""Characters of a value that a message shows."""


class Reason(str, Enum):
    """Why a log does not fit."""

    CONVERSION = "conversion"
    NOT_UTF8 = "not_utf8"
    TOO_LARGE = "too_large"
    MISSING = "missing"
    EXPRESSION = "expression"
    LATE = "late"
    FUTURE = "future"
    PARTITION = "partition"
    SPREAD = "spread"
    KEY = "key"
    ORDERING = "ordering"


@dataclass(frozen=True)
class BoundsSpec:
    """See `config.table.Bounds`: seconds around the time at which the batch was planned, None for no bound."""

    late: int | None
    future: int | None
    rule: str


@dataclass(frozen=True)
class Misfits:
    """The logs that do not fit one column.

    Attributes:
        column, type: the column's name and type.
        rule: the rule that decides what becomes of the logs.
        rows: their places in the pull, ascending, each once.
        reasons: `Reason` of each, as text.
        values: the value of each, as the log has it (binary); NULL if it has none.
    """

    column: str
    type: str
    rule: str
    rows: NDArray[Any]
    reasons: pa.Array
    values: pa.Array

    def refuse(self, keys: pa.Array) -> None:
        """Raises ValueMisfit, which names the first."""
        size = pc.binary_length(self.values[0]).as_py()
        raise ValueMisfit(self.column, self.type, size, keys[int(self.rows[0])].as_py(), self.reasons[0].as_py())

    def examples(self, keys: pa.Array, with_values: bool) -> list[str]:
        """The first few, each with its log; `with_values`: with the begin of its value instead of its length."""
        sentences = []
        for place, row in enumerate(self.rows[:EXAMPLES].tolist()):
            value, reason = self.values[place], self.reasons[place].as_py()
            size = pc.binary_length(value).as_py()
            text = repr(shown(value)) if with_values else f"a value of {size} bytes"
            what = "no value" if size is None else f"{text} {reason_text(reason, self.type)}"
            sentences.append(f"column {self.column} of log {keys[row].as_py()}: {what}")
        return sentences


@dataclass(frozen=True)
class Unfit:
    """Logs that go to the quarantine: their places in the pull, and for each the first column that it does not fit.

    `why` has the columns `column_name`, `type_wanted`, `reason`, `value`.
    """

    rows: NDArray[Any]
    why: pa.Table


def judged(
    before: pa.Array, after: pa.Array, spec: ColumnSpec, rule: str, failed: NDArray[Any] | None = None
) -> tuple[pa.Array, list[Misfits]]:
    """A converted column with its misfits NULL, and the misfits.

    Args:
        before: the values before conversion (binary).
        after: the values after it; NULL where one did not convert.
        spec: the column.
        rule: the rule for its misfits.
        failed: the logs for which its expression cannot be computed, if there are any.
    """
    too_large = _longer(before, spec.max_bytes)
    if too_large is not None:
        after = without(after, too_large)
    if not misfits(before, after) and not (spec.required and after.null_count):
        return after, []
    unfit = pc.is_null(after) if spec.required else pc.and_(pc.is_null(after), pc.is_valid(before))
    rows = np.nonzero(unfit.to_numpy(zero_copy_only=False))[0]
    values = before.take(pa.array(rows))
    reasons = np.full(len(rows), Reason.CONVERSION.value, object)
    reasons[pc.is_null(as_text(values)).to_numpy(zero_copy_only=False)] = Reason.NOT_UTF8.value
    if too_large is not None:
        reasons[too_large[rows]] = Reason.TOO_LARGE.value
    reasons[pc.is_null(values).to_numpy(zero_copy_only=False)] = Reason.MISSING.value
    if failed is not None:
        reasons[failed[rows]] = Reason.EXPRESSION.value
    return after, [Misfits(spec.name, spec.type, rule, rows, pa.array(reasons, pa.string()), values)]


def beyond(times: pa.Array, planned: Any, bounds: BoundsSpec) -> list[tuple[Reason, NDArray[Any]]]:
    """Masks of the event times that are too late and too far in the future; none if all are within bounds.

    `planned` is when the logs' batch was planned: one timestamp, or one of each log.
    """
    masks = []
    for reason, limit, sign, compare in (
        (Reason.LATE, bounds.late, -1, pc.less),
        (Reason.FUTURE, bounds.future, 1, pc.greater),
    ):
        if limit is None:
            continue
        edge = pc.add(planned, pa.scalar(sign * limit * 1_000_000, pa.duration("us")))
        mask = pc.fill_null(compare(times, edge), False)
        if pc.any(mask).as_py():
            masks.append((reason, mask.to_numpy(zero_copy_only=False)))
    return masks


def of_times(spec: ColumnSpec, before: pa.Array, found: Iterable[tuple[Reason, NDArray[Any]]], rule: str) -> Misfits:
    """The misfits of a column of event times, from `beyond`.

    Args:
        spec: the column's.
        before: its values in the log, strings.
        found: reasons, each with a mask of the rows that it is of (bool).
        rule: the file's `misfits`.
    """
    rows, reasons = [], []
    for reason, mask in found:
        places = np.nonzero(mask)[0]
        rows.append(places)
        reasons.append(np.full(len(places), reason.value, object))
    all_rows = np.concatenate(rows)
    order = np.argsort(all_rows, kind="stable")
    values = before.take(pa.array(all_rows[order]))
    return Misfits(
        spec.name, spec.type, rule, all_rows[order], pa.array(np.concatenate(reasons)[order], pa.string()), values
    )


def of_values(spec: ColumnSpec, before: pa.Array, mask: NDArray[Any], rule: str, reason: Reason) -> Misfits:
    """The misfits whose value has the column's type, but cannot be a folder's name, a key or an ordering value.

    Args:
        spec: the column's.
        before: its values in the log, strings.
        mask: the rows, bool.
        rule: the file's `misfits`.
        reason: of all of them.
    """
    rows = np.nonzero(mask)[0]
    reasons = pa.array([reason.value] * len(rows), pa.string())
    return Misfits(spec.name, spec.type, rule, rows, reasons, before.take(pa.array(rows)))


def of_rest(column: str, before: pa.Array, after: pa.Array, rule: str) -> Misfits:
    """The misfits of the rest column: logs with a value that is no UTF-8, each with its first such value.

    Args:
        column: the rest column's name.
        before: the values, binary.
        after: the values, strings.
        rule: the file's `misfits`.
    """
    lost = pc.and_(pc.is_null(after.items), pc.is_valid(before.items)).to_numpy(zero_copy_only=False)
    places = np.nonzero(lost)[0]
    owner = np.searchsorted(np.asarray(before.offsets), places, side="right") - 1
    rows, first = np.unique(owner, return_index=True)
    reasons = pa.array([Reason.NOT_UTF8.value] * len(rows), pa.string())
    return Misfits(column, REST, rule, rows, reasons, before.items.take(pa.array(places[first])))


def without(values: pa.Array, unfit: NDArray[Any]) -> pa.Array:
    """`values` of any type, NULL where `unfit`."""
    return values.take(pa.array(np.arange(len(values)), mask=unfit))


def unfit_logs(found: Sequence[Misfits]) -> Unfit:
    """Each log in one of `found`, with its first misfit."""
    rows = np.concatenate([item.rows for item in found])
    numbers = np.concatenate([np.full(len(item.rows), number) for number, item in enumerate(found)])
    # np.unique returns first places: of a log's misfits the first column's stays.
    rows, first = np.unique(rows, return_index=True)
    reasons = pa.concat_arrays([item.reasons for item in found]).take(pa.array(first))
    values = pa.concat_arrays([item.values for item in found]).take(pa.array(first))
    names, types = pa.array([item.column for item in found]), pa.array([item.type for item in found])
    which = pa.array(numbers[first])
    why = pa.table(
        {"column_name": names.take(which), "type_wanted": types.take(which), "reason": reasons, "value": values}
    )
    return Unfit(rows, why)


def _longer(values: pa.Array, bound: int | None) -> NDArray[Any] | None:
    """Which values have more bytes than `bound`; None if no value has."""
    if bound is None or (pc.max(pc.binary_length(values)).as_py() or 0) <= bound:
        return None
    longer = pc.fill_null(pc.greater(pc.binary_length(values), bound), False)
    longer_mask: NDArray[Any] = longer.to_numpy(zero_copy_only=False)
    return longer_mask


def shown(value: pa.Scalar) -> str | None:
    """The begin of a binary value as text, None where it is NULL."""
    content = value.as_py()
    return None if content is None else content.decode("utf-8", "backslashreplace")[:SHOWN]
