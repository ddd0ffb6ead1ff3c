"""Which partitions are complete: what was committed and looked at since is folded into the ledger's partitions."""

from __future__ import annotations

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import EventTimePartition
from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.names import BACKFILL
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Completion
from airflow_provider_slshudi.planning.periods import Periods

_ALWAYS = -(1 << 62)


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


def duty_begin(ledger: Ledger, pipeline: Pipeline) -> int | None:
    """Partitions that begin before then (unix seconds) are never complete; None: that is not known yet."""
    # Not the file's of now: the shards were begun by that of then.
    start = ledger.start(pipeline.name) or str(pipeline.source.start)
    if start == "end":
        return ledger.began(pipeline.name)
    return _ALWAYS if start == "begin" else int(start)


def complete(ledger: Ledger, pipeline: Pipeline) -> list[Completion]:
    """Completes all partitions that are, by what looks and commits told; may be repeated. Returns these.

    Raises:
        ConfigError: as `partition_of`.
    """
    partition = partition_of(pipeline)
    periods, prefix = periods_of(pipeline), f"{partition.name}="
    since = duty_begin(ledger, pipeline)
    if since is None:
        return []
    lateness, done = partition.lateness_seconds or 0, list[Completion]()
    while True:
        folded = ledger.fold(pipeline.name, periods, prefix, lateness, since, [BACKFILL])
        done += folded.completions
        if not folded.has_more:
            return done
