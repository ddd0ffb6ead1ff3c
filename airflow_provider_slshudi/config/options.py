"""Hudi's options: the ones that all our writes have, and the ones that a pipeline may set."""

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
# What our clients run of Hudi's, and the options that this reads (names of 1.2.0). Batches are written without Hudi's
# writers, indexes and key generators, a commit is told without Hudi's callbacks and validators, and a table is made of
# the pipeline's file alone: options of these would change nothing.
_SERVED = {
    "the metadata table": r"metadata\.(enable|compact\..+|log\.compaction\..+|max\..+|dir\.filter\.regex|"
    r"file\.cache\.max\.size\.mb|optimized\.log\.blocks\.scan\.enable|spillable\.map\.path|"
    r"derive\.from\.datatable\.clean\.policy|index\.(column|partition)\.stats\..+)|hfile\.block\.cache\..+",
    "the end of a commit": r"finalize\.write\.parallelism|markers\.delete\.parallelism|consistency\.check\..+|"
    r"optimistic\.consistency\.guard\..+|fail\.job\.on\.duplicate\.data\.file\.detection",
    "rollbacks": r"rollback\..+",
    "clustering": r"clustering\.(plan\.(?!strategy\.(small\.file|target\.file|single\.group|sort\.columns)).+|"
    r"max\.parallelism|group\.read\.parallelism|execution\.strategy\.class)|"
    r"layout\.optimize\.(curve\.build\.method|build\.curve\.sample\.size)",
    "compaction": r"compaction\.(?!payload|record\.merger).+|compact\.merge\.handle\.class",
    "clustering and compaction": r"parquet\.(block\.size|page\.size|dictionary\.enabled|field_id\.write\.enabled)|"
    r"memory\.(?!writestatus).+|common\.(spillable|diskmap)\..+|table\.services\.incremental\.enabled",
    "cleaning": r"clean(er)?\.(parallelism|partition\.filter\..+|trigger\..+|max\.commits(\.to\.clean)?|"
    r"incremental\.(enabled|mode)|optimize\.using\.local\.engine\.context)",
    "archival": r"archive\.(delete\.parallelism|beyond\.savepoint|block\.on\.latest\.clean\.ectr)|"
    r"timeline\.(compaction\..+|manifest\.retained\.versions)",
    "listing of files": r"filesystem\.(operation\.retry\..+|view\.(?!remote).+)|file\.listing\.parallelism",
    "metrics, and what begins with a client": r"metrics\..+|client\.init\.callback\.classes",
}
_TAKES_EFFECT = re.compile(rf"hoodie\.({'|'.join(_SERVED.values())})")
BOUNDS = "hoodie.metadata.index.column.stats.enable"
BOUNDS_OF = "hoodie.metadata.index.column.stats.column.list"
"""Whether, and of which columns, Hudi keeps the least and the greatest value per file in its metadata table."""
_OTHER_INDEX = re.compile(
    r"hoodie\.metadata\.(index\.(?!column\.stats\.|partition\.stats\.).*|([a-z]+\.)?record\.(level\.)?index)\.enable"
)


def require_allowed(key: str, value: str) -> None:
    """Raises ValueError, which says why, if `table.options` may not have this option."""
    if key in PROTOCOL_OPTIONS:
        raise ValueError(
            f"option {key} may not be set: exactly-once rests on it, as on {', '.join(sorted(PROTOCOL_OPTIONS))}"
        )
    if _OTHER_INDEX.fullmatch(key):
        if value.lower() != "false":
            raise ValueError(
                f"option {key} may not be set: batches keep only one of Hudi's indexes up to date, bounds of columns "
                f"({BOUNDS}); with others they fail at some values (docs/decisions/0028)"
            )
    elif not _TAKES_EFFECT.fullmatch(key):
        raise ValueError(
            f"option {key} may not be set: it would have no effect, or another field of this file says the same. "
            f"Options of Hudi's take effect that are about {', '.join(_SERVED)}. Take it out"
        )


def names_in(text: str) -> frozenset[str]:
    """The columns that an option lists."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())
