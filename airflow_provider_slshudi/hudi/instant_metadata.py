"""What this package's instants have on the timeline: their action, and a commit's extra metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider_slshudi.config.table import Table
from airflow_provider_slshudi.handover.batch_files import QUARANTINE
from airflow_provider_slshudi.hudi.layout import Instant
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.planning.ranges import Range

COMPACTION = "compaction"
COMMIT_ACTION = "commit"
SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
"""Operations that move rows into other files and change no row."""
OWNER = "slshudi.service"
"""Key in a table service's plan; its value is the pipeline's name."""


def action(table: Table) -> str:
    """Hudi's name for a commit of the table."""
    return "deltacommit" if table.type == "merge_on_read" else COMMIT_ACTION


def planned_by_us(timeline: Timeline, instant: Instant, pipeline: str) -> bool:
    """Whether this pipeline planned a pending instant; a plan that was cut off counts as its own."""
    plan = timeline.plan(instant)
    return not plan or (plan.get("extraMetadata") or {}).get(OWNER) == pipeline


TRANSACTION_KEY = "slshudi.transaction"
RANGES_KEY = "slshudi.ranges"
PIPELINE_KEY = "slshudi.pipeline"
KIND_KEY = "slshudi.kind"
DAG_KEY = "slshudi.dag"
RUN_KEY = "slshudi.run"
QUARANTINE_KEY = "slshudi.quarantine"
"""Only if a commit has quarantined rows: how many, and the SHA-256 of the manifest that lists their files."""
ROUTES_KEY = "slshudi.routes"
"""Only if a pipeline has routes: the rows in each one's table by its key, and the SHA-256 of the manifest."""


FILTER_KEY = "slshudi.filter"
"""Only if the pipeline has a condition: what `shaping.conditions.restored` needs to apply it again."""

RangeCounts = tuple[Range, int | None, int | None, int]
"""A range with its rows and raw bytes, both None for a gap, and the logs that the pipeline's condition left out."""


def ranges_of(extra: Mapping[str, str]) -> Iterator[RangeCounts]:
    """The ranges in a commit's extra metadata."""
    for shard, rows in json.loads(extra[RANGES_KEY]).items():
        for begin, end, count, size, *filtered in rows:
            yield Range(int(shard), begin, end, gap=count is None), count, size, sum(filtered)


def ranges_text(ranges: Iterable[RangeCounts]) -> str:
    """JSON for `ranges_of`: shard -> [[begin, end, rows, raw bytes, filtered], ...].

    A gap's rows and bytes are null; the last number stands where it is not 0.
    """
    by_shard: dict[str, list[list[int | None]]] = {}
    for item, rows, size, filtered in sorted(ranges, key=lambda counts: counts[0]):
        counts = [item.begin, item.end, rows, size]
        by_shard.setdefault(str(item.shard), []).append([*counts, filtered] if filtered else counts)
    return json.dumps(by_shard, separators=(",", ":"))


def extra_of(
    transaction: str,
    pipeline: str,
    kind: str,
    run: tuple[str, str],
    ranges: str,
    quarantined: tuple[int, str] | None = None,
    routed: tuple[Mapping[str, int], str] | None = None,
    filter: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The extra metadata that each of our commits carries.

    Args:
        run: the DAG and its run.
        ranges: as `ranges_text` gives them.
        quarantined: rows in the quarantine and the manifest's SHA-256, if the commit has a part there.
        routed: rows in the tables of routes by their keys, and the manifest's SHA-256, if the pipeline has routes.
        filter: the condition by which logs were left out, if there is one.
    """
    extra = {
        TRANSACTION_KEY: transaction,
        PIPELINE_KEY: pipeline,
        KIND_KEY: kind,
        DAG_KEY: run[0],
        RUN_KEY: run[1],
        RANGES_KEY: ranges,
    }
    if quarantined is not None:
        rows, digest = quarantined
        extra[QUARANTINE_KEY] = json.dumps({"rows": rows, "digest": digest})
    if routed is not None:
        rows_by_key, digest = routed
        extra[ROUTES_KEY] = json.dumps({"rows": dict(rows_by_key), "digest": digest}, separators=(",", ":"))
    if filter is not None:
        extra[FILTER_KEY] = json.dumps(filter, separators=(",", ":"))
    return extra


def has_part(extra: Mapping[str, str], key: str) -> bool:
    """Whether a commit of the main table has a part in the table beside it that has this key (`hudi.beside`)."""
    if key == QUARANTINE:
        return QUARANTINE_KEY in extra
    return key in json.loads(extra.get(ROUTES_KEY, "{}")).get("rows", {})


def digest_of_manifest(extra: Mapping[str, str]) -> str | None:
    """The SHA-256 of the manifest that lists the files of a commit's parts beside; None where it has none."""
    for key in (QUARANTINE_KEY, ROUTES_KEY):
        if key in extra:
            digest: str = json.loads(extra[key])["digest"]
            return digest
    return None
