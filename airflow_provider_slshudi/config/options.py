"""Hudi's options: the ones that all our writes have, and the ones that a pipeline may not set."""

from __future__ import annotations

import re

# All our write clients run with these: an instant that is written but not committed stays until somebody decides it
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
# Hudi serves these in its own commits or writers; our commits and writers do not.
_NOT_SERVED = (
    "hoodie.write.commit.callback.on",
    "hoodie.schema.on.read.enable",
    "hoodie.write.table.version",
    "hoodie.table.base.file.format",
    "hoodie.parquet.outputtimestamptype",
    "hoodie.clustering.preserve.commit.metadata",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.metadata.auto.delete.partitions",
)
# The pipeline's own fields set these.
_TABLE_OPTIONS = (
    "hoodie.base.path",
    "hoodie.avro.schema",
    "hoodie.write.schema",
    "hoodie.clustering.plan.strategy.sort.columns",
    "hoodie.table.name",
    "hoodie.populate.meta.fields",
    "hoodie.datasource.write.partitionpath.field",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.table.type",
    "hoodie.table.timeline.timezone",
    "hoodie.datasource.write.table.type",
    "hoodie.table.recordkey.fields",
    "hoodie.datasource.write.recordkey.field",
    "hoodie.table.ordering.fields",
    "hoodie.table.precombine.field",
    "hoodie.datasource.write.precombine.field",
    "hoodie.record.merge.mode",
    "hoodie.write.record.merge.mode",
    "hoodie.table.partial.update.mode",
    "hoodie.datasource.write.payload.class",
    "hoodie.compaction.payload.class",
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.index.type",
    "hoodie.index.bucket.engine",
    "hoodie.bucket.index.num.buckets",
    "hoodie.bucket.index.hash.field",
    "hoodie.clean.policy",
    "hoodie.cleaner.policy",
    "hoodie.clean.hours.retained",
    "hoodie.cleaner.hours.retained",
    "hoodie.clean.commits.retained",
    "hoodie.cleaner.commits.retained",
    "hoodie.keep.min.commits",
    "hoodie.keep.max.commits",
    "hoodie.compact.inline.trigger.strategy",
    "hoodie.compact.inline.max.delta.commits",
)
BOUNDS = "hoodie.metadata.index.column.stats.enable"
BOUNDS_OF = "hoodie.metadata.index.column.stats.column.list"
"""Whether, and of which columns, Hudi keeps the least and the greatest value per file in its metadata table."""
_OTHER_INDEX = re.compile(
    r"hoodie\.metadata\.(index\.(?!column\.stats\.|partition\.stats\.).*|([a-z]+\.)?record\.(level\.)?index)\.enable"
)
PROTECTED_OPTIONS = frozenset((*PROTOCOL_OPTIONS, *_NOT_SERVED, *_TABLE_OPTIONS))


def require_allowed(key: str, value: str) -> None:
    """Raises ValueError, which says why, if `table.options` may not have this option."""
    if not key.startswith("hoodie.") or key in PROTECTED_OPTIONS:
        raise ValueError(
            f"option {key} may not be set: an option starts with hoodie. and is not one that exactly-once rests on "
            f"({', '.join(sorted(PROTECTED_OPTIONS))})"
        )
    if _OTHER_INDEX.fullmatch(key) and value.lower() != "false":
        raise ValueError(
            f"option {key} may not be set: batches keep only one of Hudi's indexes up to date, bounds of columns "
            f"({BOUNDS}); with others they fail at some values (docs/decisions/0028)"
        )


def names_in(text: str) -> frozenset[str]:
    """The columns that an option lists."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())
