"""Which logs become rows, and of which table: `where` and `routes`, as tasks and verifications apply them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_slshudi.rows.convert import ColumnSpec
from airflow_provider_slshudi.shaping.inputs import Inputs

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.shaping.evaluation import Mask
    from airflow_provider_slshudi.shaping.grammar import Expression, Tree


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
        return None if pipeline.condition is None else cls._made(pipeline, pipeline.condition)

    @classmethod
    def _made(cls, pipeline: Pipeline, expression: Expression) -> Condition:
        columns = pipeline.named_by(expression)
        keys = [*expression.keys, *(key for column in columns for key in pipeline.keys_of(column))]
        specs = tuple(ColumnSpec.of(pipeline, column) for column in columns)
        return cls(expression.tree, specs, tuple(dict.fromkeys(keys)))

    @classmethod
    def of_routes(cls, pipeline: Pipeline) -> tuple[Condition, ...]:
        """The conditions of the pipeline's routes, in their order."""
        return tuple(cls._made(pipeline, expression) for expression in pipeline.route_conditions)

    def kept(self, logs: pa.Table) -> Mask | None:
        """The logs that it keeps, None where it keeps all.

        It keeps a log for which it cannot be computed, since a value does not convert: such a log is a misfit, and
        unknown is not false.

        Args:
            logs: as `sls.decode` gives them with `keys`, unmasked.
        """
        return Inputs(self.columns, logs, (self.tree,)).kept(self.tree)


@dataclass(frozen=True)
class Sorting:
    """Which of a pipeline's tables each log goes into, if any; travels to the executors.

    Attributes:
        where: the condition that a log must meet; None where all logs become rows.
        routes: the conditions of the routes.
    """

    where: Condition | None
    routes: tuple[Condition, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of logs that the conditions need."""
        conditions = [*([] if self.where is None else [self.where]), *self.routes]
        return tuple(dict.fromkeys(key for condition in conditions for key in condition.keys))

    def tables(self, logs: pa.Table) -> NDArray[np.uint8]:
        """The number of each log's table: LEFT_OUT, 0 for the main one, else of a route, counted from 1.

        Args:
            logs: as `sls.decode` gives them with `keys`, unmasked.
        """
        numbers = route_numbers(self.routes, logs)
        keeps = None if self.where is None else self.where.kept(logs)
        if keeps is not None:
            numbers[~keeps] = LEFT_OUT
        return numbers


LEFT_OUT = 255
"""Stands for no table."""


def route_numbers(routes: Sequence[Condition], logs: pa.Table) -> NDArray[np.uint8]:
    """For each log the number of the first route whose condition it meets, counted from 1; 0 where it meets none."""
    numbers = np.zeros(logs.num_rows, np.uint8)
    # Together: what several conditions share is computed once.
    columns = {column.name: column for route in routes for column in route.columns}
    inputs = Inputs([*columns.values()], logs, tuple(route.tree for route in routes))
    for number, route in reversed([*enumerate(routes, 1)]):
        numbers[inputs.met(route.tree)] = number
    return numbers


def described(pipeline: Pipeline) -> dict[str, Any] | None:
    """What `restored` needs to sort the same logs again, as JSON; None where all go into the main table."""
    conditions = [*([] if pipeline.condition is None else [pipeline.condition]), *pipeline.route_conditions]
    if not conditions:
        return None
    names = {column.name for condition in conditions for column in pipeline.named_by(condition)}
    columns = [column for column in pipeline.columns if column.name in names]
    fields = [column.model_dump(mode="json", exclude_defaults=True) for column in columns]
    routes = [[route.name, route.where] for route in pipeline.routes]
    return {"where": pipeline.where, "columns": fields, **({"routes": routes} if routes else {})}


def restored(described: Mapping[str, Any]) -> Sorting:
    """The conditions that `described` told."""
    from airflow_provider_slshudi.config.pipeline import Pipeline

    columns = described["columns"] or [{"name": "unused"}]
    plain: dict[str, Any] = {"name": "c", "source": {"project": "p", "logstore": "l"}}
    plain["table"] = {"path": "file:///unused", "name": "unused"}
    plain["routes"] = [{"name": name, "where": where} for name, where in described.get("routes", ())]
    pipeline = Pipeline.model_validate({**plain, "columns": columns, "where": described["where"]})
    return Sorting(Condition.of(pipeline), Condition.of_routes(pipeline))
