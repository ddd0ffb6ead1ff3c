"""Sensors: the first step of every run, which decides what earlier runs left; and one that waits for such a thing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowSkipException, conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_slshudi.exceptions import TailUnderWay, TransientError
from airflow_provider_slshudi.hooks.runs import AirflowRuns
from airflow_provider_slshudi.operators.base import LOOK_WAIT_SECONDS, SCHEDULED, PipelineTask, as_xcom
from airflow_provider_slshudi.operators.events import tell
from airflow_provider_slshudi.operators.lineage import LineageTask
from airflow_provider_slshudi.settings import CONNECTIONS, Connections
from airflow_provider_slshudi.triggers.ledger import SettleTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.dangling import Awaited

# Where the trigger knows what it waits for; each look is a task of its own.
_KNOWN_SECONDS = 60.0
# Airflow ends the wait of a deferred task this long after its own time-out: where no triggerer runs.
_LATE_SECONDS = 60.0


class PipelineSensor(PipelineTask, BaseSensorOperator):
    """Looks until it may go on; takes no worker slot while it waits, unless `mode` is `poke`."""

    template_fields: Sequence[str] = ("pipeline", *CONNECTIONS)

    def __init__(
        self,
        *,
        pipeline: str | Pipeline,
        poke_interval: float = 15,
        timeout: float = 3600,
        mode: str = "reschedule",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        sls_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        ledger_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, timeout=timeout, mode=mode, **kwargs)
        self._connect(Connections(sls_conn_id, spark_conn_id, ledger_conn_id, storage_conn_id))
        self.pipeline, self.deferrable, self._every = pipeline, deferrable, self.poke_interval

    def execute(self, context: Context) -> Any:
        """Looks until it may go on, or defers."""
        if self.deferrable:
            return self.wake(context, time.time())
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            raise self._out_of_time(str(error)) from None

    def wake(self, context: Context, since: float, event: Any = None) -> Any:
        """One look of a deferred task that has waited since `since` (unix seconds)."""
        answer: Any = self.poke(context)
        if answer.is_done:
            return answer.xcom_value
        remaining_seconds = since + self.timeout - time.time()
        if remaining_seconds <= 0:
            raise self._out_of_time(f"{self.task_id} has waited for {self.timeout:.0f} s{self._said()}")
        self.defer(
            trigger=self.trigger(remaining_seconds),
            method_name="wake",
            kwargs={"since": since},
            timeout=timedelta(seconds=remaining_seconds + _LATE_SECONDS),
        )

    def trigger(self, seconds: float) -> BaseTrigger:
        """What a deferred task waits for, at most for so long."""
        what = self._awaited()
        until_next = _KNOWN_SECONDS if what.pipeline else self.poke_interval
        return SettleTrigger(self.connections.ledger, asdict(what), min(until_next, seconds))

    def _awaited(self) -> Awaited:
        """What the next look waits for; of no pipeline: its time alone."""
        from airflow_provider_slshudi.transaction.dangling import Awaited

        return Awaited()

    def _said(self) -> str:
        """What the last look found, behind the time that was waited."""
        return ""

    def _out_of_time(self, said: str) -> Exception:
        """What ends a wait that was too long."""
        return AirflowSensorTimeout(said)


class SlsHudiSettleSensor(LineageTask, PipelineSensor):
    """Decides every dangling transaction of the pipeline, and waits until ledger and table agree.

    Looks again while something cannot be read, another run decides, an earlier run of the same DAG works on a batch
    of the tail, or, for tables with upserts, any other batch is under way. Fails at once if a person has to look.

    It takes no worker slot while it waits, unless `mode` is `poke`.

    Each outlet that is an asset's alias gets an event for each committed batch that has none yet.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        deferrable: waits in the triggerer, which has to run; the default is Airflow's `[operators] default_deferrable`.
            Otherwise `mode` says how it waits.
    """

    _obstacle: TransientError | None = None

    def poke(self, context: Context) -> PokeReturnValue:
        """One attempt to settle."""
        from airflow_provider_slshudi.transaction.settle import require_alone, settle

        self._obstacle = None
        try:
            with self.told(context, passing=(TransientError,)):
                work = self.work(context)
                settled = settle(work, AirflowRuns(context["ti"]), LOOK_WAIT_SECONDS)
                self._obstacle = _earlier(work)
                if self._obstacle is None:
                    require_alone(work)
                    self.remember(work, tell(self.outlets, context, work, settled))
        except TransientError as error:
            self._obstacle = error
        if self._obstacle is None:
            return PokeReturnValue(is_done=True, xcom_value=as_xcom(settled))
        self.log.warning("not settled yet: %s", self._obstacle)
        if isinstance(self._obstacle, TailUnderWay):
            # Each look is a task: the next one is made when it may find that no process works there any more.
            self.poke_interval = max(self._every, self._obstacle.quiet_in + 1)
        return PokeReturnValue(is_done=False)

    def _awaited(self) -> Awaited:
        from airflow_provider_slshudi.transaction.dangling import Awaited, awaited

        return Awaited() if self._obstacle is None else awaited(self._obstacle)

    def _said(self) -> str:
        return f": {self._obstacle}"

    def _out_of_time(self, said: str) -> Exception:
        """What ends a wait that was too long: a batch that is worked on is no fault, and the next run waits for it."""
        skips = isinstance(self._obstacle, TailUnderWay)
        return AirflowSkipException(str(self._obstacle)) if skips else AirflowSensorTimeout(said)


class SlsHudiDanglingSensor(PipelineSensor):
    """Waits until something of the pipeline dangles: a batch whose run has ended, or an instant that no run finishes.

    It decides nothing, and takes no lease; `SlsHudiRecoverOperator` behind it does. A run that a person triggered does
    not wait. One that its schedule started is skipped where nothing dangled within `timeout`, and fails where that is
    not known.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
        deferrable: waits in the triggerer, which has to run; the default is Airflow's `[operators] default_deferrable`.
            Otherwise `mode` says how it waits.
    """

    _unknown: TransientError | None = None

    def poke(self, context: Context) -> PokeReturnValue:
        """One look."""
        from airflow_provider_slshudi.transaction.settle import is_settled

        if getattr(context["dag_run"], "run_type", None) != SCHEDULED:
            return PokeReturnValue(is_done=True)
        self._unknown = None
        try:
            with self.told(context, passing=(TransientError,)):
                return PokeReturnValue(is_done=not is_settled(self.work(context), AirflowRuns(context["ti"])))
        except TransientError as error:
            self.log.warning("whether something dangles is not known yet: %s", error)
            self._unknown = error
            return PokeReturnValue(is_done=False)

    def _out_of_time(self, said: str) -> Exception:
        if self._unknown is not None:
            return AirflowSensorTimeout(f"whether something dangles is not known: {self._unknown}")
        return AirflowSkipException(f"nothing dangled: {said}")


def _earlier(work: Work) -> TailUnderWay | None:
    """What another run of the tail works on, which is no trouble."""
    from airflow_provider_slshudi.transaction.settle import require_turn

    try:
        require_turn(work)
    except TailUnderWay as error:
        return error
    return None
