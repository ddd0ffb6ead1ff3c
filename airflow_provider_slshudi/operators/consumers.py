"""What computes on a table next: a consumer's changes taken and confirmed, and partitions that become complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_provider_slshudi import settings
from airflow_provider_slshudi.hooks.consumer_changes import Of, SlsHudiChangesHook, Start, pipeline_name, require_places
from airflow_provider_slshudi.hooks.ledger import LedgerHook
from airflow_provider_slshudi.operators.base import PipelineOperator, dag_file, failing_at_once
from airflow_provider_slshudi.operators.events import tell_partitions

if TYPE_CHECKING:
    from airflow.sdk import Context


class SlsHudiChangesOperator(PipelineOperator):
    """Takes what a consumer has not confirmed; skips where there is nothing.

    Returns `Changes.to_dict()`: its `commits`, or its `partitions`, and a `key` that is the same each time that these
    are given, for sinks that keep it. `SlsHudiConfirmOperator` behind the work confirms them. A run that does not come
    so far is given the same again by a retry; once it is over, the next run is. While a run has them, those of others
    fail and may be retried: give the DAG `max_active_runs=1`.

    It asks the ledger alone. A consumer that does not exist is made.

    Args:
        pipeline: its name in the ledger, for which no file is needed here; or a file, or a `Pipeline`; connections as
            in `PipelineOperator`, of which the ledger's is used.
        consumer: its name; templated.
        of: what it is given: `commits`, or `partitions` that are complete.
        start: where a new consumer begins: `begin` with the first that the ledger knows, `end` after the newest.
        most: how many it is given at once, at most; 100 unless it says otherwise.
        hold: for how long cleaning and archival wait for it; a week unless it, or a person, says otherwise.
    """

    template_fields: Sequence[str] = (*PipelineOperator.template_fields, "consumer")

    def __init__(
        self,
        *,
        consumer: str,
        of: Of = "commits",
        start: Start = "begin",
        most: int | None = None,
        hold: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_places(consumer, of, start, most)
        self.consumer, self.of, self.start, self.most, self.hold = consumer, of, start, most, hold

    def execute(self, context: Context) -> dict[str, Any]:
        """Takes."""
        with failing_at_once():
            changes = self._hook(context).take()
        if changes is None:
            raise AirflowSkipException(f"consumer {self.consumer} has confirmed all that there is")
        self.log.info("consumer %s: %s, %d rows", self.consumer, changes.key, changes.rows)
        return changes.to_dict()

    def _hook(self, context: Context) -> SlsHudiChangesHook:
        return SlsHudiChangesHook(
            pipeline_name(self.pipeline, dag_file(context)),
            self.consumer,
            of=self.of,
            start=self.start,
            most=self.most,
            hold=self.hold,
            ledger_conn_id=self.ledger_conn_id,
            context=context,
        )


class SlsHudiConfirmOperator(PipelineOperator):
    """Confirms what a consumer has taken, behind the work on it; the same again does nothing.

    It fails where another run has taken the same since: that run confirms then.

    Args:
        pipeline: as in `SlsHudiChangesOperator`.
        changes: the result of that operator; templated.
    """

    template_fields: Sequence[str] = (*PipelineOperator.template_fields, "changes")

    def __init__(self, *, changes: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.changes = changes

    def execute(self, context: Context) -> None:
        """Confirms."""
        from airflow_provider_slshudi.downstream.changes import Changes

        if not isinstance(self.changes, Mapping) or {"consumer", "last", "nonce"} - self.changes.keys():
            raise AirflowFailException(
                f"`changes` is {self.changes!r}, not what SlsHudiChangesOperator returns: give its `output`, as in "
                "`changes=taken.output`"
            )
        changes = Changes.of(self.changes)
        with failing_at_once():
            LedgerHook(self.connections.ledger).ledger().confirm(
                changes.pipeline, changes.consumer, changes.last, changes.nonce
            )
        self.log.info("consumer %s: %s is confirmed", changes.consumer, changes.key)


class SlsHudiPartitionsOperator(PipelineOperator):
    """Completes the partitions of event times that are, and announces those that no task did; skips where none is.

    A partition is complete once all logs are committed that the service received until its end and the declared
    `lateness`; it is again once late logs are. It asks the ledger alone, and not the service: the pipeline's plans do.

    Each outlet that is an asset has an event for each partition, with its value as the partition's key: these start
    DAGs with a `PartitionedAssetTimetable`. Each outlet that is an asset's alias has one event without a key, which
    starts all other DAGs. Before Airflow 3.3 there are no such keys, and an asset has one event for all. The `extra` of
    an event names the partitions. If a task dies before its success, the next run's sends its events.

    Args:
        pipeline: a pipeline's name or file, or a `Pipeline`; connections as in `PipelineOperator`, of which the
            ledger's is used.
    """

    def __init__(self, **kwargs: Any) -> None:
        # The next one begins when Airflow has the events of this one, or will never have them.
        super().__init__(**{"max_active_tis_per_dag": 1, **kwargs})

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Completes."""
        from airflow_provider_slshudi.downstream.changes import CompletePartition
        from airflow_provider_slshudi.downstream.completeness import complete

        with failing_at_once():
            pipeline = settings.pipeline(self.pipeline, dag_file(context))
            ledger = LedgerHook(self.connections.ledger).ledger()
            complete(ledger, pipeline)
        partitions = tell_partitions(self.outlets, context, ledger, pipeline)
        if not partitions:
            raise AirflowSkipException("no partition became complete")
        return [asdict(CompletePartition.of(item)) for item in partitions]
