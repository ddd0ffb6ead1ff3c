"""What the tasks of a pipeline share: connections, and what the ledger and metrics are told."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    conf,
    redact,
)
from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_provider_slshudi import dagfile
from airflow_provider_slshudi.exceptions import ConfigError, Fenced, JobFailed, TerminalError
from airflow_provider_slshudi.handover.names import BACKFILL, PARAMS_SOURCE, part_of
from airflow_provider_slshudi.hooks.runs import this_airflow
from airflow_provider_slshudi.plugins.links import PipelineLink, SparkLink, web_address
from airflow_provider_slshudi.settings import CONNECTIONS, Connections
from airflow_provider_slshudi.system.processes import end_with_parent

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.dagfile import DagFile
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.settle import Settled


_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")


def signal(work: Work) -> None:
    """Sends the pipeline's figures, `slshudi.NAME` with tags; does nothing where Airflow sends no metrics."""
    if not any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES):
        return
    from airflow.providers.common.compat.sdk import Stats

    from airflow_provider_slshudi.views.metrics import metrics

    for metric in metrics(work.ledger, [work.pipeline.name]):
        Stats.gauge(f"slshudi.{metric.name}", metric.value, tags=dict(metric.labels))


_log = logging.getLogger(__name__)
LOOK_WAIT_SECONDS = 5.0
"""A look waits this long for the run that decides at the moment: mostly a plan, which takes less."""
SCHEDULED = "scheduled"
"""The type of a DAG run that its schedule started."""
ANSWER_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 15.0


class ConnectedTask:
    """A task whose arguments may name connections; mixed into operators and sensors."""

    sls_conn_id: str | None = None
    spark_conn_id: str | None = None
    ledger_conn_id: str | None = None
    storage_conn_id: str | None = None

    @property
    def connections(self) -> Connections:
        """The connections that arguments name."""
        return Connections(**{name: getattr(self, name) for name in CONNECTIONS})

    def _connect(self, connections: Connections) -> None:
        for name in CONNECTIONS:
            setattr(self, name, getattr(connections, name))


class PipelineTask(ConnectedTask):
    """A task of one pipeline."""

    operator_extra_links: Collection[BaseOperatorLink] = (PipelineLink(),)
    pipeline: str | Pipeline
    task_id: str
    _work: Work | None = None

    @property
    def _step(self) -> str:
        """The task's own name, without those of its groups."""
        return self.task_id.rpartition(".")[2][:64]

    def work(self, context: Context) -> Work:
        """The pipeline, ledger, Spark and log service of a step.

        Raises as `work_of`, and TableSilent where the file system of one of its tables does not answer: a task that
        waits for it may be one that no signal can end, and its slot would be lost to all DAGs.
        """
        end_with_supervisor()
        from airflow_provider_slshudi.hooks.work import work_of
        from airflow_provider_slshudi.transaction.context import Run
        from airflow_provider_slshudi.transaction.tables import TransactionTables

        def show(page: str) -> None:
            address = web_address(page)
            if page and not address:
                _log.warning("the driver's page %r is no web address, so there is no link to it", page)
            try:
                context["ti"].xcom_push(SparkLink().xcom_key, address)
            except Exception as error:
                # No reason to stop the driver.
                _log.warning("Airflow does not take the link to %s: %s", page, error)

        run = context["dag_run"]
        asking = Run(run.dag_id, run.run_id, this_airflow())
        self._work = work_of(self.pipeline, asking, dag_file(context), show, self.connections)
        TransactionTables.of(self._work).require_answer(ANSWER_SECONDS)
        return self._work

    @contextmanager
    def told(self, context: Context, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Tells the ledger whether the step succeeded in the block, so that pages and alerts know.

        Fails the task at once on an error that no retry mends; leaves every other error to Airflow's retries. The step
        itself, or the next run, gets over `passing` errors.
        """
        try:
            yield
        except TerminalError as error:
            # A batch that changed hands is in good ones.
            if not isinstance(error, Fenced):
                self.in_trouble(context, error, waits=False)
            _log.debug("%r", error, exc_info=True)
            # Without its cause, which says the same: a task's log shows every error of a chain with its text.
            raise AirflowFailException(str(error)) from None
        except AirflowFailException as error:
            self.in_trouble(context, error, waits=False)
            raise
        except AirflowSkipException:
            raise
        except Exception as error:
            instance = context["ti"]
            waits = isinstance(error, passing) or instance.try_number <= instance.max_tries
            self.in_trouble(context, error, waits and not issubclass(kind_of(error), TerminalError))
            raise
        except AirflowTaskTimeout as error:
            self.in_trouble(context, error, waits=False)
            raise
        if self._work is not None:
            ledger, name = self._work.ledger, self._work.pipeline.name
            with only_logged():
                ledger.clear_troubles(name, context["dag_run"].dag_id, self._step)
                signal(self._work)

    def in_trouble(self, context: Context, error: BaseException, waits: bool, step: str = "") -> None:
        """Tells the ledger that the step, the task's own unless named, failed, or `waits` and tries again by itself.

        A wrong param is no trouble of the pipeline: the person who triggered the run sees it.

        Args:
            context: Airflow's, of the task.
            error: why the step failed.
            waits: whether the step tries again by itself.
            step: the step's name; empty: the task's own.
        """
        if isinstance(error, ConfigError) and error.source == PARAMS_SOURCE:
            return
        from airflow_provider_slshudi import settings
        from airflow_provider_slshudi.hooks.ledger import LedgerHook

        work, run = self._work, context["dag_run"]
        name = settings.stem(self.pipeline) if work is None else work.pipeline.name
        with only_logged():
            ledger = LedgerHook(self.connections.ledger).ledger() if work is None else work.ledger
            planned = getattr(self, "transaction", None)
            transaction = planned.get("transaction") if isinstance(planned, Mapping) else None
            of_step = (name, run.dag_id, run.run_id, step or self._step)
            kind, message = failure_of(error)
            ledger.note_trouble(*of_step, kind, message + self._place(context, error), waits, transaction)
            if not waits:
                ledger.answer(name, BACKFILL, first_run(context), f"{kind}: {message}")

    def _place(self, context: Context, error: BaseException) -> str:
        """Where the pipeline's file has to be edited, as a line of its own; empty where that is not known."""
        from airflow_provider_slshudi import settings
        from airflow_provider_slshudi.config.load import place_of
        from airflow_provider_slshudi.views.advice import advice

        field = advice(kind_of(error).__name__).field
        if not (field and isinstance(self.pipeline, str)):
            return ""
        fields = error.fields if isinstance(error, JobFailed) else vars(error)
        try:
            path = settings.pipeline_path(self.pipeline, dag_file(context))
            return f"\nTo edit: {place_of(path, field, str(fields.get('column') or ''))}"
        except Exception as found:
            _log.info("where to edit the pipeline's file is not known: %s", found)
            return ""

    def say_if_late(self, work: Work, committed: Transaction) -> None:
        """Warns in the task's log where the batch just committed missed what the pipeline promises."""
        from airflow_provider_slshudi.ledger.records import Kind
        from airflow_provider_slshudi.views.freshness import NEWEST, late

        if work.pipeline.promised is None or committed.kind is not Kind.TAIL:
            return
        with only_logged():
            past = dropwhile(
                lambda item: item.transaction.id != committed.id, work.ledger.history(work.pipeline.name, NEWEST)
            )
            if sentence := late(work.ledger, [*past]):
                _log.warning("%s", sentence)

    def on_kill(self) -> None:
        """Ends the Spark driver that runs for this task."""
        from airflow_provider_slshudi.hooks.spark import SparkLauncher

        if self._work is not None and isinstance(self._work.launcher, SparkLauncher):
            self._work.launcher.kill()


def dag_file(context: Context) -> DagFile | None:
    """The file of the task's DAG, beside which its pipelines are; None where it has none."""
    dag = context.get("dag")
    return None if dag is None else dagfile.of(dag)


def slices(task: BaseOperator, context: Context, wait: timedelta) -> Iterator[float]:
    """Seconds to wait until the next look, again and again, until `wait` is over.

    At most half of what the task, or its run, has until Airflow ends it. Who triggered a run does not wait.
    """
    if getattr(context["dag_run"], "run_type", None) != SCHEDULED:
        return
    limits = (task.execution_timeout, getattr(context.get("dag"), "dagrun_timeout", None))
    until = time.monotonic() + min([wait, *(limit / 2 for limit in limits if limit)]).total_seconds()
    while (remaining_seconds := until - time.monotonic()) > 0:
        yield min(remaining_seconds, _LOOK_AGAIN_SECONDS)


def refuse_test() -> None:
    """Refuses `airflow tasks test`, which makes a run that ends with the test.

    Raises:
        AirflowFailException: it is one.
    """
    if os.environ.get("AIRFLOW_TEST_MODE"):
        raise AirflowFailException(
            "`airflow tasks test` plans nothing: it would reserve the batch for a run that ends with the test. "
            "`slshudi plan NAME` shows what would be read; trigger the DAG to read it"
        )


def refuse_retries(task_id: object, kwargs: Mapping[str, Any], reason: str) -> None:
    """Refuses `retries` among an operator's own arguments; those that a DAG gives all of its tasks do not reach it.

    A mapped task's arguments hold its DAG's defaults beside its own.

    Args:
        task_id: the task's.
        kwargs: the operator's arguments.
        reason: why this step has no retries.

    Raises:
        ConfigError: the step was given some.
    """
    given = kwargs.get("retries")
    groups = [kwargs.get("task_group"), kwargs.get("dag")]
    defaults = [kwargs.get("default_args"), *(getattr(group, "default_args", None) for group in groups)]
    usual = [default.get("retries") for default in defaults if default]
    if given and given not in [*usual, conf.getint("core", "default_task_retries", fallback=0)]:
        raise ConfigError(
            f"task {task_id}: retries={given!r}: this step has none: {reason}. Leave the argument out",
            source=str(task_id),
            field="retries",
            value=given,
        )


class PipelineOperator(PipelineTask, BaseOperator):
    """An operator of one pipeline.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; a text may be a template.
        sls_conn_id: the log service's connection, instead of the pipeline's; templated.
        spark_conn_id: Spark's connection, instead of the pipeline's; templated.
        ledger_conn_id: the ledger's connection, instead of the option of that name; templated.
        storage_conn_id: a connection of type `aws` with the object store's keys, which become this process's AWS_*
            variables and its driver's; a cluster's executors have keys of their own. Templated.
    """

    template_fields: Sequence[str] = ("pipeline", *CONNECTIONS)

    def __init__(
        self,
        *,
        pipeline: str | Pipeline,
        sls_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        ledger_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self._connect(Connections(sls_conn_id, spark_conn_id, ledger_conn_id, storage_conn_id))


@contextmanager
def failing_at_once() -> Iterator[None]:
    """Fails the task at once on an error that no retry mends, and tells the ledger nothing: for what is no trouble of
    the pipeline.

    Raises:
        AirflowFailException: such an error ended the block.
    """
    try:
        yield
    except TerminalError as error:
        raise AirflowFailException(str(error)) from None


@contextmanager
def only_logged() -> Iterator[None]:
    """The ledger may be the very thing that failed: what is told to people changes nothing for the step."""
    try:
        yield
    except Exception as error:
        _log.warning("the ledger was not told how the step went, or does not tell: %s", error)


def kind_of(error: BaseException) -> type[BaseException]:
    """The error's class; of a job, the class of the error that ended its driver: that one says what is to be done."""
    return error.cause if isinstance(error, JobFailed) and not isinstance(error, TerminalError) else type(error)


def failure_of(error: BaseException) -> tuple[str, str]:
    """The name of the error's class as `kind_of` has it, and the error's text without what Airflow holds secret."""
    return kind_of(error).__name__, str(redact(str(error)))


def end_with_supervisor() -> None:
    """Makes a task end with Airflow's supervisor of it, as a driver ends with its task.

    A task without its supervisor cannot tell how it ended, so it would work for nothing, and hold its batch until
    Airflow notices. A task that runs within a caller's process (`dag.test`) has no supervisor.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if isinstance(comms, CommsDecoder):
        end_with_parent(comms.socket)


def refuse_unknown_params(context: Context, known: Collection[str]) -> None:
    """Refuses params of a run that no task reads: a misspelt name would count as left out.

    Raises:
        ConfigError: the run was given a name that is neither a param of the DAG nor `known`.
    """
    run_conf = getattr(context["dag_run"], "conf", None) or {}
    names = {*getattr(context.get("dag"), "params", ()), *known}
    for name in sorted(run_conf.keys() - names):
        raise ConfigError(
            f"the run was given {name!r}, but the DAG's params are {', '.join(sorted(names))}. Nothing was done; "
            "trigger the DAG again with one of these",
            source=PARAMS_SOURCE,
            field=name,
            value=run_conf[name],
        )


def who_asked(context: Context) -> str:
    """The user who triggered the run; the run itself if its schedule did."""
    run = context["dag_run"]
    return getattr(run, "triggering_user_name", None) or f"{run.dag_id}/{run.run_id}"


def first_run(context: Context) -> str:
    """The DAG and the run that a backfill began with, if this run is a part of one; else this run itself."""
    run = context["dag_run"]
    return f"{run.dag_id}/{part_of(run.run_id)[0]}"


def as_xcom(settled: list[Settled]) -> list[dict[str, Any]]:
    """The settled transactions as JSON."""
    return [
        {"transaction": item.transaction, "instant": item.instant, "decision": item.decision.value} for item in settled
    ]
