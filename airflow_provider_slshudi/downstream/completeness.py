"""Which partitions are complete: what was committed and looked at since is folded into the ledger's partitions."""

from __future__ import annotations

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import EventTimePartition
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Completion
from airflow_provider_slshudi.planning.periods import Period, Periods


def partition_of(pipeline: Pipeline) -> EventTimePartition:
    """The pipeline's partition of event times, whose lateness is declared.

    Raises:
        ConfigError: it has none, or declares none.
    """
    partition = pipeline.table.partition
    if not isinstance(partition, EventTimePartition) or partition.lateness is None:
        raise ConfigError(
            f"pipeline {pipeline.name}: which partitions are complete is known where `table.partition` is by "
            "`event_time` and declares its `lateness`",
            source=pipeline.name,
            field="table.partition.lateness",
        )
    return partition


def periods_of(pipeline: Pipeline) -> Periods:
    """How the pipeline's partitions cut time.

    Raises:
        ConfigError: as `partition_of`.
    """
    partition = partition_of(pipeline)
    return Periods(partition.every, partition.timezone)


def is_never_complete(ledger: Ledger, pipeline: Pipeline, period: Period) -> bool:
    """Whether all was committed that the service had received in time, and a period from before the pipeline began had
    no log; raises as `partition_of`."""
    lateness, (mark, _) = partition_of(pipeline).lateness_seconds or 0, ledger.progress(pipeline.name)
    began = ledger.began(pipeline.name)
    if began is None or mark is None or period.begin >= began or mark < period.end + lateness:
        return False
    # The newest commits may have written to it.
    complete(ledger, pipeline)
    return not ledger.partitions(pipeline.name, period.begin, period.begin + 1)


def complete(ledger: Ledger, pipeline: Pipeline) -> list[Completion]:
    """Completes all partitions that are, by what looks and commits told; may be repeated. Returns these.

    Raises:
        ConfigError: as `partition_of`.
    """
    partition = partition_of(pipeline)
    periods, prefix = periods_of(pipeline), f"{partition.name}="
    # Not the file's of now: the shards were begun by that of then.
    start, since = ledger.start(pipeline.name) or str(pipeline.source.start), None
    if start == "end":
        since = ledger.began(pipeline.name)
        if since is None:
            return []
    elif start != "begin":
        since = int(start)
    lateness, done = partition.lateness_seconds or 0, list[Completion]()
    while True:
        folded = ledger.fold(pipeline.name, periods, prefix, lateness, since, [BACKFILL])
        done += folded.completions
        if not folded.has_more:
            return done
