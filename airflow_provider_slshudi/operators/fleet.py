"""The two tasks of a fleet: a look at all its pipelines, and the whole transaction of one that has something to do."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, conf
from airflow.sdk import AssetAlias, BaseOperator, BaseOperatorLink

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import (
    BatchUnderWay,
    ConfigError,
    Fenced,
    JobFailed,
    LeaseHeld,
    SlsHudiError,
    TableSilent,
    TerminalError,
    TransientError,
)
from airflow_provider_slshudi.handover.names import BATCH, MIRROR, SYNC
from airflow_provider_slshudi.hooks.runs import AirflowRuns, this_airflow
from airflow_provider_slshudi.operators.base import (
    LOOK_WAIT_SECONDS,
    SCHEDULED,
    ConnectedTask,
    PipelineOperator,
    dag_file,
    end_with_supervisor,
    failure_of,
    only_logged,
    refuse_retries,
    refuse_test,
    signal,
    slices,
)
from airflow_provider_slshudi.operators.events import (
    complete_partitions,
    extra_of,
    may_be_untold,
    table_asset,
    tell,
    tell_partitions,
)
from airflow_provider_slshudi.operators.lineage import CommitLineageTask
from airflow_provider_slshudi.plugins.links import PipelineLink, SparkLink, TransactionLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.hooks.work import Works
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.transaction.context import Work
    from airflow_provider_slshudi.transaction.dangling import Ended
    from airflow_provider_slshudi.transaction.news import News

_LOOK_SECONDS = 30.0
_REST, _LONG_REST = timedelta(minutes=1), timedelta(minutes=10)


class SlsHudiLookOperator(ConnectedTask, BaseOperator):
    """Looks at many pipelines at once; returns those that have something to do, the most urgent first.

    These are pipelines with unread logs, with a batch that an earlier run left, in trouble, or whose table no run has
    looked at for an hour. The logs that expire first come first, then those that are oldest. Pipelines that cannot be
    looked at come last: their own tasks say why. It gives at most as many as Airflow maps (`[core] max_map_length`).

    Each outlet that is an asset's alias gets an event for the partitions of a pipeline that are complete without a log.

    Args:
        pipelines: names or files.
        wait: how long it waits for news where there is nothing to do, as `SlsHudiPlanOperator` does.
        sls_conn_id, spark_conn_id, ledger_conn_id, storage_conn_id: see `PipelineOperator`.
    """

    template_fields: Sequence[str] = ("pipelines", *settings.CONNECTIONS)
    _has_completed = False

    def __init__(
        self,
        *,
        pipelines: Sequence[str],
        wait: timedelta = timedelta(),
        sls_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        ledger_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipelines, self.wait = [*pipelines], wait
        self._connect(settings.Connections(sls_conn_id, spark_conn_id, ledger_conn_id, storage_conn_id))

    def execute(self, context: Context) -> list[str]:
        """Looks."""
        refuse_test()
        from airflow_provider_slshudi.hooks.work import Works
        from airflow_provider_slshudi.sls.faults import PERSON
        from airflow_provider_slshudi.transaction.context import Run
        from airflow_provider_slshudi.transaction.news import await_news

        run = context["dag_run"]
        # One that does not answer must not hold up the others for as long as a task of its own would wait.
        asking = Run(run.dag_id, run.run_id, this_airflow(), PERSON)
        works = Works(asking, dag_file(context), self.connections)
        ended = AirflowRuns(context["ti"])
        end_with_supervisor()
        due_pipelines, watched = self._found(works, ended, context)
        for seconds in slices(self, context, self.wait):
            if due_pipelines or self._has_completed:
                break
            await_news(watched, seconds)
            due_pipelines, watched = self._found(works, ended, context)
        for work in watched:
            with only_logged():
                # Also what died with its task.
                if may_be_untold(work):
                    tell_partitions(self.outlets, context, work.ledger, work.pipeline)
        self.log.info("%d of %d pipelines have something to do", len(due_pipelines), len(self.pipelines))
        return due_pipelines[: conf.getint("core", "max_map_length", fallback=1024)]

    def _found(self, works: Works, ended: Ended, context: Context) -> tuple[list[str], list[Work]]:
        """All pipelines that have something to do, the most urgent first; and those whose next log is news.

        One in trouble rests for a minute, and is not asked: where a run follows the one before at once, and where no
        batch ever went well. There is no batch at which a run reserves it, so each would start a task. One whose
        table's file system does not answer rests for ten, since a process that asks it may stay for good.
        """
        from airflow_provider_slshudi.sls.transport import answers
        from airflow_provider_slshudi.transaction.news import News

        watched = []

        def look(name: str) -> News | None:
            try:
                work = works.of(name)
                _require_name(work, name)
                news = self._look(work, ended)
                if news is None:
                    watched.append(work)
                return news
            except BatchUnderWay as error:
                self.log.info("%s", error)
                return None
            except SlsHudiError as error:
                self.log.warning("%s cannot be looked at, its own task says more: %s", name, error)
            except Exception:
                self.log.exception("%s cannot be looked at", name)
            return News()

        resting = set[str]()
        # Who triggers a run has mended something perhaps.
        if getattr(context["dag_run"], "run_type", None) == SCHEDULED:
            resting = _resting(works.ledger, context["dag_run"].dag_id, bool(self.wait))
        names = [name for name in self.pipelines if settings.stem(name) not in resting]
        news_by_name = answers(look, names, _LOOK_SECONDS)
        for name in names:
            if name not in news_by_name:
                self.log.warning("%s has not answered for %d s, its own task says more", name, _LOOK_SECONDS)
                news_by_name[name] = News()
        return [
            name for _, name in sorted((news, name) for name, news in news_by_name.items() if news is not None)
        ], watched

    def _look(self, work: Work, ended: Ended) -> News | None:
        from airflow_provider_slshudi.downstream.completeness import complete
        from airflow_provider_slshudi.transaction.news import news

        pipeline_news = news(work, ended)
        if pipeline_news is None:
            # A task of its own would do that.
            if work.pipeline.lateness is not None and complete(work.ledger, work.pipeline):
                self._has_completed = True
            with only_logged():
                signal(work)
        return pipeline_news


class SlsHudiBatchOperator(CommitLineageTask, PipelineOperator):
    """One transaction of a pipeline in one task: settle, plan, open, append, record, commit, the catalog's sync, and
    the mirrors.

    Where a batch is full and leaves logs, it goes on with the next one for as long as the pipeline's `batch.drain`.

    Skips where there is nothing new, or where another run works on the pipeline's batch. A batch that fails is decided
    at once, since its run may go on with other pipelines for long. It has no retries, and refuses some: the next run
    comes soon. A catalog that does not answer fails no batch, and is told as trouble of a step `sync` or
    `mirror`.

    Each outlet that is an asset's alias gets an event for each committed batch, and one for the partitions that became
    complete, without a partition's key.

    Args:
        pipeline: a pipeline's name or file, which has the pipeline's name.
    """

    operator_extra_links: Collection[BaseOperatorLink] = (PipelineLink(), TransactionLink(), SparkLink())
    transaction: Any = None
    _tells = False

    def __init__(self, **kwargs: Any) -> None:
        refuse_retries(kwargs.get("task_id"), kwargs, "the next run of the fleet comes soon and decides what is left")
        super().__init__(**{**kwargs, "retries": 0})

    @property
    def called(self) -> str:
        """What Airflow's pages call the task."""
        return settings.stem(self.pipeline)

    def execute(self, context: Context) -> dict[str, Any]:
        """Decides what is left, then reads, writes and commits."""
        refuse_test()
        from airflow_provider_slshudi.transaction.news import let_go

        done, began = None, time.monotonic()
        with self.told(context, passing=(TransientError, JobFailed)):
            work = self.work(context)
            try:
                _require_name(work, self.pipeline)
            except ConfigError:
                self._work = None  # the trouble is this file's, not that of the pipeline that it names
                raise
            planned = None
            try:
                planned = self._planned(work, context)
            finally:
                if planned is None:
                    # What comes now is for the run that looks next: this run may go on for long.
                    with only_logged():
                        let_go(work)
            if planned is not None:
                done = self._done(work, planned, context)
                self.drain(work, context, began, 1)
            self._publish(work, context)
            self._complete(work, context)
        if done is None and not self._tells:
            raise AirflowSkipException("there is nothing new to read")
        # A skipped task would lose the events of what settle committed.
        return done or {}

    def drain(self, work: Work, context: Context, began: float, committed: int = 0) -> int:
        """Reads, writes and commits further batches, for as long as the pipeline's `batch.drain` since it `began`.

        Returns how many batches are committed. One that fails ends it, and the task as well if no batch before it was
        committed; else the task would lose their events, and the next run says why it fails.

        Args:
            work: the pipeline's.
            context: Airflow's, of the task.
            began: by `time.monotonic`.
            committed: how many batches this task has committed before.
        """
        from airflow_provider_slshudi.config.values import pause
        from airflow_provider_slshudi.transaction.backlog import is_left

        limit, work = work.pipeline.batch.drain, replace(work, drains=True)
        until = began + (0.0 if limit is None else pause(limit).total_seconds())
        while time.monotonic() < until and is_left(work):
            try:
                planned = self._next(work)
                if planned is None:
                    break
                self._done(work, planned, context)
            except SlsHudiError as error:
                if not committed:
                    raise
                self.log.error("%d batches are committed, and the next run repeats this one: %s", committed, error)
                break
            committed += 1
        return committed

    def _next(self, work: Work) -> Transaction | None:
        """The next batch of the tail; None where there is none, or another run is first."""
        from airflow_provider_slshudi.transaction.plan import tail

        try:
            return tail(work, in_turn=True)
        except (BatchUnderWay, LeaseHeld) as error:
            self.log.info("%s", error)
            return None

    def _planned(self, work: Work, context: Context) -> Transaction | None:
        from airflow_provider_slshudi.transaction.plan import tail
        from airflow_provider_slshudi.transaction.settle import require_alone, require_turn, settle

        try:
            settled = settle(work, AirflowRuns(context["ti"]), LOOK_WAIT_SECONDS)
            told_batches = tell(self.outlets, context, work, settled)
            self.remember(work, told_batches)
            self._tells = bool(told_batches)
            require_turn(work)
            require_alone(work)
            return tail(work, in_turn=True)
        except (BatchUnderWay, LeaseHeld) as error:
            # Of a lease: another run decides what is left, and that may take it minutes.
            if self._tells:
                self.log.info("%s", error)
                return None
            raise AirflowSkipException(str(error)) from None

    def _done(self, work: Work, planned: Transaction, context: Context) -> dict[str, Any]:
        self.log.info("planned transaction %s", planned.id)
        self.transaction = {"transaction": planned.id, "token": planned.token}
        try:
            committed = self._committed(work, planned)
        except BaseException as error:
            from airflow_provider_slshudi.transaction.context import GIVEN_UP

            # Who was fenced has nothing to give up.
            if not isinstance(error, Fenced):
                with only_logged():
                    work.ledger.note_failure(planned.id, self._step, *failure_of(error))
                    work.ledger.note(planned.id, GIVEN_UP, str(planned.token))
                if isinstance(error, Exception):
                    self._decide(work, planned, context)
            raise
        complete_partitions(work)
        self.remember(work, [*(batch.transaction for batch in self._batches), committed])
        self.say_if_late(work, committed)
        done = extra_of(committed)
        for outlet in self.outlets:
            if isinstance(outlet, AssetAlias):
                context["outlet_events"][outlet].add(table_asset(work.pipeline), extra=done)
        return done

    def _publish(self, work: Work, context: Context) -> None:
        """Tells catalog and mirrors, also where a run before could not, or settle alone committed a batch."""
        from airflow_provider_slshudi.services.maintenance import sync
        from airflow_provider_slshudi.services.mirrors import mirror

        pipeline = work.pipeline
        for step, tell_it, is_named in (
            (SYNC, sync, pipeline.catalog is not None),
            (MIRROR, mirror, pipeline.mirror is not None),
        ):
            try:
                if is_named:
                    tell_it(work)
            except SlsHudiError as error:
                # Failed, the task would lose the event of its commit.
                self.log.error("the table is up to date, and its readers by the step %s are not: %s", step, error)
                self.in_trouble(context, error, not isinstance(error, TerminalError), step)
            else:
                with only_logged():
                    work.ledger.clear_troubles(pipeline.name, context["dag_run"].dag_id, step)

    def _complete(self, work: Work, context: Context) -> None:
        """As `SlsHudiPartitionsOperator`; last, since Airflow has the event a moment later, with the task's success."""
        if work.pipeline.lateness is None:
            return
        complete_partitions(work)
        with only_logged():
            if tell_partitions(self.outlets, context, work.ledger, work.pipeline):
                self._tells = True

    def _committed(self, work: Work, planned: Transaction) -> Transaction:
        from airflow_provider_slshudi.transaction import steps

        of_batch = work, planned.id, planned.token
        # Also between the steps: a killed task that names no process is not known before its run is over.
        with work.heartbeat(planned.id, planned.token):
            steps.open_instant(*of_batch)
            steps.append(*of_batch)
            steps.record(*of_batch)
            return steps.commit(*of_batch)

    def _decide(self, work: Work, planned: Transaction, context: Context) -> None:
        """Settles once more: what is left of this very run is this task's, unless the task was started twice."""
        from airflow_provider_slshudi.transaction.news import let_go
        from airflow_provider_slshudi.transaction.settle import settle

        try:
            if work.ledger.get(planned.id).token != planned.token:
                return
            let_go(work)
            for item in settle(work, AirflowRuns(context["ti"]), LOOK_WAIT_SECONDS):
                self.log.warning("transaction %s: %s", item.transaction, item.decision.value)
        except Exception as error:
            self.log.warning("what the batch left is decided by a later run: %s", error)


class SlsHudiDrainOperator(SlsHudiBatchOperator):
    """Goes on behind a full batch: whole transactions in one task, one after the other, while logs are left.

    It ends after the pipeline's `batch.drain`, and skips where nothing is left. Returns how many `batches` it made.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Drains."""
        refuse_test()
        with self.told(context, passing=(TransientError, JobFailed)):
            work = self.work(context)
            batches = self.drain(work, context, time.monotonic())
            if batches:
                self._publish(work, context)
        if not batches:
            raise AirflowSkipException("no logs are left")
        return {"batches": batches}


def _resting(ledger: Ledger, dag_id: str, at_once: bool) -> set[str]:
    """Pipelines that this DAG found in trouble a moment ago; `at_once`: a run follows the one before at once."""
    from airflow_provider_slshudi.ledger.records import State, is_within

    now, resting = ledger.now(), set[str]()
    for trouble in ledger.troubles():
        if trouble.dag_id != dag_id or trouble.step != BATCH:
            continue
        rests = is_within(trouble.at, _REST, now) and (at_once or not ledger.last(trouble.pipeline, 1, State.COMMITTED))
        if rests or (trouble.error == TableSilent.__name__ and is_within(trouble.at, _LONG_REST, now)):
            resting.add(trouble.pipeline)
    return resting


def _require_name(work: Work, pipeline: str | Pipeline) -> None:
    """Two files of one name would be one pipeline to the ledger, and two to Airflow."""
    called = settings.stem(pipeline)
    if work.pipeline.name != called:
        raise ConfigError(
            f"{called}: the file is called {called}, and its pipeline {work.pipeline.name}. In a fleet both have the "
            "same name: rename the file",
            source=called,
            field="name",
            value=work.pipeline.name,
        )
