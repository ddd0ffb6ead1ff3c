"""Which logs become rows: a pipeline's `where`, as tasks and verifications apply it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.rows.convert import ColumnSpec
from airflow_provider_slshudi.shaping.inputs import Inputs

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.shaping.evaluation import Mask
    from airflow_provider_slshudi.shaping.grammar import Tree


@dataclass(frozen=True)
class Condition:
    """A condition with the columns that it names; travels to the executors.

    Attributes:
        tree: the condition.
        columns: the columns that it names, also through others.
        keys: the keys of logs that it needs.
    """

    tree: Tree
    columns: tuple[ColumnSpec, ...]
    keys: tuple[str, ...]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Condition | None:
        """The pipeline's; None where all logs become rows."""
        expression = pipeline.condition
        if expression is None:
            return None
        columns = pipeline.named_by(expression)
        keys = [*expression.keys, *(key for column in columns for key in pipeline.keys_of(column))]
        specs = tuple(ColumnSpec.of(pipeline, column) for column in columns)
        return cls(expression.tree, specs, tuple(dict.fromkeys(keys)))

    def kept(self, logs: pa.Table) -> Mask | None:
        """The logs that it keeps, None where it keeps all.

        It keeps a log for which it cannot be computed, since a value does not convert: such a log is a misfit, and
        unknown is not false.

        Args:
            logs: as `sls.decode` gives them with `keys`, unmasked.
        """
        return Inputs(self.columns, logs, (self.tree,)).kept(self.tree)


def described(pipeline: Pipeline) -> dict[str, Any] | None:
    """What `restored` needs to apply the pipeline's condition to the same logs again, as JSON; None without one."""
    expression = pipeline.condition
    if expression is None:
        return None
    columns = pipeline.named_by(expression)
    fields = [column.model_dump(mode="json", exclude_defaults=True) for column in columns]
    return {"where": pipeline.where, "columns": fields}


def restored(described: Mapping[str, Any]) -> Condition:
    """The condition that `described` told."""
    from airflow_provider_slshudi.config.pipeline import Pipeline

    columns = described["columns"] or [{"name": "unused"}]
    plain: dict[str, Any] = {"name": "c", "source": {"project": "p", "logstore": "l"}}
    plain["table"] = {"path": "file:///unused", "name": "unused"}
    condition = Condition.of(Pipeline.model_validate({**plain, "columns": columns, "where": described["where"]}))
    assert condition is not None  # noqa: S101
    return condition
