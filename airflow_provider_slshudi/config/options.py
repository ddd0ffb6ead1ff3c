"""Hudi's options: the ones that all our writes have, and the ones that a pipeline may set."""

from __future__ import annotations

from difflib import get_close_matches

# All our write clients run with these: an instant that is written but not committed stays until a run decides it
# (hudi.apache.org/docs/concurrency_control, docs/design.md). A pipeline that changed one could lose data.
PROTOCOL_OPTIONS = {
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    "hoodie.clean.failed.writes.policy": "NEVER",
    "hoodie.cleaner.policy.failed.writes": "NEVER",
    "hoodie.metadata.streaming.write.enabled": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.multiple.enabled": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.fail.on.timeline.archiving": "true",
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.write.markers.type": "DIRECT",
}
# What our clients run of Hudi's, and the options that it reads, without their `hoodie.`. Batches are written without
# Hudi's writers, indexes and key generators, a commit is told without Hudi's callbacks and validators, and a table is
# made of the pipeline's file alone: options of these would change nothing.
_SERVED = {
    "the metadata table": """
        hfile.block.cache.enabled hfile.block.cache.size hfile.block.cache.ttl.minutes
        metadata.compact.max.delta.commits metadata.compact.max.delta.seconds metadata.compact.trigger.strategy
        metadata.derive.from.datatable.clean.policy metadata.dir.filter.regex metadata.enable
        metadata.file.cache.max.size.mb metadata.index.column.stats.column.list metadata.index.column.stats.enable
        metadata.index.column.stats.file.group.count metadata.index.column.stats.inMemory.projection.threshold
        metadata.index.column.stats.max.columns.to.index metadata.index.column.stats.parallelism
        metadata.index.column.stats.processing.mode.override metadata.index.partition.stats.enable
        metadata.index.partition.stats.file.group.count metadata.index.partition.stats.parallelism
        metadata.log.compaction.blocks.threshold metadata.log.compaction.enable metadata.max.deltacommits.when_pending
        metadata.max.init.parallelism metadata.max.logfile.size metadata.max.reader.buffer.size
        metadata.max.reader.memory metadata.optimized.log.blocks.scan.enable metadata.spillable.map.path
    """,
    "the end of a commit": """
        consistency.check.enabled consistency.check.initial_interval_ms consistency.check.max_checks
        consistency.check.max_interval_ms fail.job.on.duplicate.data.file.detection finalize.write.parallelism
        markers.delete.parallelism optimistic.consistency.guard.sleep_time_ms
    """,
    "rollbacks": """
        rollback.avoid.duplicate.plan rollback.instant.backup.dir rollback.instant.backup.enabled rollback.parallelism
        rollback.using.markers
    """,
    "clustering": """
        clustering.execution.strategy.class clustering.group.read.parallelism clustering.max.parallelism
        clustering.plan.generation.use.local.engine.context clustering.plan.partition.filter.mode
        clustering.plan.strategy.binary.copy.schema.evolution.enable clustering.plan.strategy.class
        clustering.plan.strategy.cluster.begin.partition clustering.plan.strategy.cluster.end.partition
        clustering.plan.strategy.daybased.lookback.partitions
        clustering.plan.strategy.daybased.skipfromlatest.partitions clustering.plan.strategy.earliest.commit.to.cluster
        clustering.plan.strategy.file.slices.sort.by clustering.plan.strategy.max.bytes.per.group
        clustering.plan.strategy.max.num.groups clustering.plan.strategy.partition.regex.pattern
        clustering.plan.strategy.partition.selected layout.optimize.build.curve.sample.size
        layout.optimize.curve.build.method
    """,
    "compaction": """
        compact.merge.handle.class compaction.daybased.target.partitions compaction.lazy.block.read
        compaction.logfile.num.threshold compaction.logfile.size.threshold compaction.partition.path.regex
        compaction.plan.generator compaction.reverse.log.read compaction.strategy compaction.target.io
    """,
    "clustering and compaction": """
        common.diskmap.compression.enabled common.spillable.diskmap.type memory.compaction.fraction
        memory.compaction.max.size memory.dfs.buffer.max.size memory.merge.fraction memory.merge.max.size
        memory.spillable.map.path parquet.block.size parquet.dictionary.enabled parquet.field_id.write.enabled
        parquet.page.size table.services.incremental.enabled
    """,
    "cleaning": """
        clean.incremental.enabled clean.max.commits clean.max.commits.to.clean clean.optimize.using.local.engine.context
        clean.parallelism clean.partition.filter.regex clean.partition.filter.selected clean.trigger.max.commits
        clean.trigger.strategy cleaner.incremental.mode cleaner.parallelism cleaner.partition.filter.regex
        cleaner.partition.filter.selected
    """,
    "archival": """
        archive.beyond.savepoint archive.block.on.latest.clean.ectr archive.delete.parallelism
        timeline.compaction.batch.size timeline.compaction.target.file.max.bytes timeline.manifest.retained.versions
    """,
    "listing of files": """
        file.listing.parallelism filesystem.operation.retry.enable filesystem.operation.retry.exceptions
        filesystem.operation.retry.initial_interval_ms filesystem.operation.retry.max_interval_ms
        filesystem.operation.retry.max_numbers filesystem.view.incr.timeline.sync.enable
        filesystem.view.rocksdb.base.path filesystem.view.secondary.type
        filesystem.view.spillable.bootstrap.base.file.mem.fraction filesystem.view.spillable.clustering.mem.fraction
        filesystem.view.spillable.compaction.mem.fraction filesystem.view.spillable.dir
        filesystem.view.spillable.log.compaction.mem.fraction filesystem.view.spillable.mem
        filesystem.view.spillable.replaced.mem.fraction filesystem.view.type
    """,
    "metrics, and what begins with a client": """
        client.init.callback.classes metrics.cloudwatch.maxDatumsPerRequest metrics.cloudwatch.metric.prefix
        metrics.cloudwatch.namespace metrics.cloudwatch.report.period.seconds metrics.configs.properties
        metrics.datadog.api.key metrics.datadog.api.key.skip.validation metrics.datadog.api.key.supplier
        metrics.datadog.api.site metrics.datadog.api.timeout.seconds metrics.datadog.metric.host
        metrics.datadog.metric.prefix metrics.datadog.metric.tags metrics.datadog.report.period.seconds
        metrics.executor.enable metrics.graphite.host metrics.graphite.metric.prefix metrics.graphite.port
        metrics.graphite.report.period.seconds metrics.jmx.host metrics.jmx.port metrics.lock.enable metrics.m3.env
        metrics.m3.host metrics.m3.port metrics.m3.service metrics.m3.tags metrics.on metrics.prometheus.port
        metrics.pushgateway.delete.on.shutdown metrics.pushgateway.host metrics.pushgateway.job.name
        metrics.pushgateway.port metrics.pushgateway.random.job.name.suffix metrics.pushgateway.report.labels
        metrics.pushgateway.report.period.seconds metrics.reporter.class metrics.reporter.metricsname.prefix
        metrics.reporter.type
    """,
}
TAKE_EFFECT = frozenset(f"hoodie.{name}" for names in _SERVED.values() for name in names.split())
"""Names of Hudi 1.2.0, to the letter: an option with a letter wrong does nothing, and Hudi does not say so."""
_NEAR = 0.9
BOUNDS = "hoodie.metadata.index.column.stats.enable"
BOUNDS_OF = "hoodie.metadata.index.column.stats.column.list"
"""Whether, and of which columns, Hudi keeps the least and the greatest value per file in its metadata table."""
OTHER_INDEXES = frozenset(
    f"hoodie.metadata.{name}.enable"
    for name in (
        "index.bloom.filter",
        "index.expression",
        "index.secondary",
        "record.index",
        "record.level.index",
        "global.record.level.index",
    )
)


def require_allowed(key: str, value: str) -> None:
    """Raises ValueError, which says why, if `table.options` may not have this option."""
    if key in PROTOCOL_OPTIONS:
        raise ValueError(
            f"option {key} may not be set: exactly-once rests on it, as on {', '.join(sorted(PROTOCOL_OPTIONS))}"
        )
    if key in OTHER_INDEXES:
        if value.lower() != "false":
            raise ValueError(
                f"option {key} may not be set: batches keep only one of Hudi's indexes up to date, bounds of columns "
                f"({BOUNDS}); with others they fail at some values (docs/decisions/0028)"
            )
    elif key not in TAKE_EFFECT:
        typed = f"hoodie.{key.lower().removeprefix('hoodie.')}"
        near = get_close_matches(typed, TAKE_EFFECT | OTHER_INDEXES, 1, _NEAR)
        mend = f"Did you mean {near[0]}?" if near else "Take it out"
        raise ValueError(
            f"option {key} may not be set: it would have no effect, or another field of this file says the same. "
            f"Options of Hudi's take effect that are about {', '.join(_SERVED)}. {mend}"
        )


def names_in(text: str) -> frozenset[str]:
    """The columns that an option lists."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())
