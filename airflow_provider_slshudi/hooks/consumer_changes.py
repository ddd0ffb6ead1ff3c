"""What a consumer has not confirmed: taken and confirmed within a task of Airflow, or in any other Python process."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseHook, get_current_context

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.hooks.runs import AirflowRuns, this_airflow
from airflow_provider_slshudi.system.processes import this_process

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.dagfile import DagFile
    from airflow_provider_slshudi.downstream.changes import Changes
    from airflow_provider_slshudi.ledger.ledger import Ledger
    from airflow_provider_slshudi.ledger.records import Consumer
    from airflow_provider_slshudi.transaction.context import Run
    from airflow_provider_slshudi.transaction.dangling import Ended

Of = Literal["commits", "partitions"]
Start = Literal["begin", "end"]


class SlsHudiChangesHook(BaseHook):
    """Gives a consumer the commits, or the complete partitions, that it has not confirmed.

        with SlsHudiChangesHook("clicks", "report") as changes:
            if changes is not None:
                ...

    The end of the block confirms them. After an error, or where the process dies, the next run is given the same ones
    again, with the same `key`. Where one task takes and another one confirms, call `take` and `confirm`.

    In a task of Airflow the take is the DAG run's, so that a retry is given it again, and another run only once that
    one is over. In any other process, of a script say, it is the process's; one that died on another machine counts as
    gone after a day.

    Args:
        pipeline: its name in the ledger, for which no file is needed here; or a file, or a `Pipeline`.
        consumer: its name. A consumer that does not exist is made.
        of: what it is given: `commits`, or `partitions` that are complete.
        start: where a new consumer begins: `begin` with the first that the ledger knows, `end` after the newest.
        most: how many it is given at once, at most; 100 unless it says otherwise.
        hold: for how long cleaning and archival wait for it; a week unless it, or a person, says otherwise.
        ledger_conn_id: the ledger's connection, instead of the option of that name.
        context: of the task that asks; found by itself where it is left out.
    """

    def __init__(
        self,
        pipeline: str | Pipeline,
        consumer: str,
        *,
        of: Of = "commits",
        start: Start = "begin",
        most: int | None = None,
        hold: timedelta | None = None,
        ledger_conn_id: str | None = None,
        context: Context | None = None,
    ) -> None:
        super().__init__()
        require_places(consumer, of, start, most)
        self.pipeline, self.consumer, self.of, self.start = pipeline_name(pipeline), consumer, of, start
        self.most, self.hold, self.ledger_conn_id = most, hold, ledger_conn_id
        self._context, self._taken = context, None

    _taken: Changes | None

    def take(self) -> Changes | None:
        """What the consumer has not confirmed; None where there is nothing.

        Raises:
            ConsumerUnderWay: another run has taken it, and is not known to be over.
            ConsumerBehind: cleaning waited for it as long as `hold` says, and deleted rows of what it would be given.
            LedgerError: the ledger knows no such pipeline, or gives the consumer something else.
        """
        from airflow_provider_slshudi.downstream.changes import MOST, take

        ledger, (run, ended) = self._ledger(), self._run()
        subscribe(ledger, self.pipeline, self.consumer, self.of, self.start, self.hold)
        return take(ledger, self.pipeline, self.consumer, run, ended, self.most or MOST)

    def confirm(self, changes: Changes) -> None:
        """Says that all of these are done; the same again does nothing.

        Raises:
            ConsumerFenced: another run has taken them since, or a person set the consumer's place.
        """
        self._ledger().confirm(changes.pipeline, changes.consumer, changes.last, changes.nonce)

    def __enter__(self) -> Changes | None:
        self._taken = self.take()
        return self._taken

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        changes, self._taken = self._taken, None
        if kind is None and changes is not None:
            self.confirm(changes)

    def _ledger(self) -> Ledger:
        return LedgerHook(settings.Connections(ledger_conn_id=self.ledger_conn_id).ledger).ledger()

    def _run(self) -> tuple[Run, Ended]:
        """Who takes, and what is known of other runs."""
        from airflow_provider_slshudi.ledger.pipeline_rows import COMMANDS
        from airflow_provider_slshudi.transaction.context import Run

        context = self._context or _current_context()
        if context is None:
            return Run(COMMANDS, this_process()), lambda run: None
        dag_run = context["dag_run"]
        return Run(dag_run.dag_id, dag_run.run_id, this_airflow()), AirflowRuns(context["ti"])


def pipeline_name(described: str | Pipeline, dag_file: DagFile | None = None) -> str:
    """The name of a pipeline in the ledger; only of a path, which may begin at a DAG file, the file is read.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    is_file = isinstance(described, str) and settings.stem(described) != described
    return settings.pipeline(described, dag_file).name if is_file else settings.stem(described)


def require_places(consumer: str, of: str, start: str, most: int | None = None) -> None:
    """Refuses a wrong argument of a consumer.

    Args:
        consumer: its name.
        of: commits or partitions.
        start: begin or end.
        most: how many it is given at once.

    Raises:
        ConfigError: names the argument.
    """
    for field, value, is_right, expected in (
        ("of", of, of in get_args(Of), " or ".join(get_args(Of))),
        ("start", start, start in get_args(Start), " or ".join(get_args(Start))),
        ("most", most, most is None or most > 0, "at least 1"),
    ):
        if not is_right:
            message = f"consumer {consumer}: {field}: {value!r}: expected {expected}"
            raise ConfigError(message, source=consumer, field=field, value=value)


def subscribe(
    ledger: Ledger, pipeline: str, consumer: str, of: str, start: str, hold: timedelta | None = None
) -> Consumer:
    """Makes the consumer where there is none of that name.

    Args:
        ledger: the pipeline's.
        pipeline: its name.
        consumer: the consumer's.
        of: commits or partitions.
        start: begin or end.
        hold: for how long cleaning and archival wait for it from now on; None: as before, a week at first.

    Raises:
        LedgerError: the ledger knows no such pipeline, or gives the consumer something else.
    """
    from airflow_provider_slshudi.downstream.changes import HOLD
    from airflow_provider_slshudi.ledger.records import Feed

    known_consumer = ledger.consumer(pipeline, consumer)
    seconds = known_consumer.hold if known_consumer and hold is None else int((hold or HOLD).total_seconds())
    return ledger.subscribe(pipeline, consumer, Feed(of), 0 if start == "begin" else None, seconds)


def _current_context() -> Context | None:
    try:
        return get_current_context()
    except RuntimeError:
        return None
