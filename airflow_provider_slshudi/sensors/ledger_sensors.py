"""Sensors of what computes on a table next: a consumer has something to take, a partition is complete."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import PokeReturnValue
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import ConfigError, TransientError
from airflow_provider_slshudi.hooks.consumer_changes import Of, Start, pipeline_name, require_places, subscribe
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.operators.base import dag_file, failing_at_once
from airflow_provider_slshudi.sensors.settle import PipelineSensor
from airflow_provider_slshudi.triggers.ledger import ChangesTrigger, PartitionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.planning.periods import Period

_TIME: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)


class _LedgerSensor(PipelineSensor):
    """Asks the ledger alone; one that does not answer is asked again."""

    def poke(self, context: Context) -> PokeReturnValue:
        """One look."""
        try:
            with failing_at_once():
                return self._look(context)
        except TransientError as error:
            self.log.warning("the ledger is asked again: %s", error)
            return PokeReturnValue(is_done=False)

    @abstractmethod
    def _look(self, context: Context) -> PokeReturnValue:
        """Asks the ledger."""


class SlsHudiChangesSensor(_LedgerSensor):
    """Waits until a consumer has something that it has not confirmed; `SlsHudiChangesOperator` behind it takes that.

    A consumer that does not exist is made, so that one that starts at the end counts from this task's first look. It
    takes no worker slot while it waits, unless `mode` is `poke`.

    Args:
        pipeline: its name in the ledger, for which no file is needed here; or a file, or a `Pipeline`; connections as
            in `PipelineOperator`, of which the ledger's is used.
        consumer: its name; templated.
        of: what it is given: `commits`, or `partitions` that are complete.
        start: where a new consumer begins: `begin` with the first that the ledger knows, `end` after the newest.
        deferrable: waits in the triggerer, which has to run, and looks every other second; the default is Airflow's
            `[operators] default_deferrable`. Otherwise `mode` says how it waits.
    """

    template_fields: Sequence[str] = (*PipelineSensor.template_fields, "consumer")

    def __init__(self, *, consumer: str, of: Of = "commits", start: Start = "begin", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_places(consumer, of, start)
        self.consumer, self.of, self.start = consumer, of, start

    def trigger(self, seconds: float) -> BaseTrigger:
        """What a deferred task waits for, at most for so long."""
        return ChangesTrigger(self.connections.ledger, self._name, self.consumer, seconds)

    _name = ""

    def _look(self, context: Context) -> PokeReturnValue:
        from airflow_provider_slshudi.ledger.records import Feed

        self._name = pipeline_name(self.pipeline, dag_file(context))
        hook = LedgerHook(self.connections.ledger)
        consumer = hook.ledger_as_it_is().consumer(self._name, self.consumer)
        if consumer is None:
            consumer = subscribe(hook.ledger(), self._name, self.consumer, self.of, self.start)
        newest = hook.ledger_as_it_is().newest(self._name, Feed(consumer.of))
        return PokeReturnValue(is_done=newest > consumer.confirmed)


class SlsHudiPartitionSensor(_LedgerSensor):
    """Waits until one partition of event times is complete, also where late logs have opened it again.

    Returns its `partition`, `times` (how often it became complete), `rows`, and `gaps`: how many ranges of logs that
    the service had dropped were recorded while it was open. It fails at once for a partition that began before the
    pipeline's first log, which never is complete. It takes no worker slot while it waits, unless `mode` is `poke`.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`, of which the
            ledger's is used.
        partition: its value, `2026-01-31-08` of an hour say; templated.
        time: instead of `partition`: a time in it, ISO 8601 with its zone, `{{ data_interval_start }}` say; templated.
        deferrable: waits in the triggerer, which has to run, and looks every other second; the default is Airflow's
            `[operators] default_deferrable`. Otherwise `mode` says how it waits.
    """

    template_fields: Sequence[str] = (*PipelineSensor.template_fields, "partition", "time")

    def __init__(self, *, partition: str | None = None, time: str | datetime | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.partition, self.time = partition, time

    def trigger(self, seconds: float) -> BaseTrigger:
        """What a deferred task waits for, at most for so long."""
        return PartitionTrigger(self.connections.ledger, *self._awaited_partition, seconds)

    _awaited_partition = "", 0

    def _look(self, context: Context) -> PokeReturnValue:
        from airflow_provider_slshudi.downstream.completeness import duty_begin
        from airflow_provider_slshudi.ledger.records import PartitionRow, PartitionState

        pipeline, period = self._period(context)
        name = pipeline.name
        self._awaited_partition = name, period.begin
        ledger = LedgerHook(self.connections.ledger).ledger_as_it_is()
        item = next(iter(ledger.partitions(name, period.begin, period.begin + 1)), None)
        if item is None:
            item = PartitionRow.empty(period, duty_begin(ledger, pipeline))
        if item.is_awaited:
            return PokeReturnValue(is_done=False)
        if item.state is PartitionState.PARTIAL:
            raise AirflowFailException(
                f"partition {item.value} of pipeline {name} began before the first log that the pipeline reads: it is "
                "never complete. Wait for a later one"
            )
        figures = {"times": item.times, "rows": item.rows, "gaps": item.gaps}
        return PokeReturnValue(is_done=True, xcom_value={"partition": item.value, **figures})

    def _period(self, context: Context) -> tuple[Pipeline, Period]:
        from airflow_provider_slshudi.downstream.completeness import periods_of

        pipeline = settings.pipeline(self.pipeline, dag_file(context))
        periods = periods_of(pipeline)
        if (self.partition is None) == (self.time is None):
            raise self._wrong("partition", self.partition, "give either `partition` or `time`")
        if self.time is not None:
            try:
                moment = _TIME.validate_python(self.time)
            except ValidationError:
                raise self._wrong("time", self.time, "expected a time with its zone") from None
            return pipeline, periods.at(int(moment.timestamp()))
        period = periods.of(str(self.partition))
        if period is None:
            raise self._wrong("partition", self.partition, f"expected the value of one {periods.every}")
        return pipeline, period

    def _wrong(self, field: str, value: object, reason: str) -> ConfigError:
        return ConfigError(f"task {self.task_id}: {field}: {value!r}: {reason}", source=self.task_id, field=field)
