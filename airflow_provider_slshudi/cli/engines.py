"""Which table a pipeline makes for the engines that will query it; docs/engines.md has the runs that show it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_slshudi.config.table import NEWEST_VERSION


@dataclass(frozen=True)
class Reads:
    """What an engine reads.

    Attributes:
        version: the newest version of Hudi's tables; 0 where it reads none of ours.
        mirrors: the formats of mirrors, the simplest one first.
    """

    version: int = 0
    mirrors: tuple[str, ...] = ()


USUAL = "spark"
ENGINES: Mapping[str, Reads] = {
    USUAL: Reads(NEWEST_VERSION),
    "spark-hudi-1.0": Reads(8),
    "spark-hudi-0.15": Reads(6),
    "spark-iceberg": Reads(mirrors=("iceberg",)),
    "hudi-rs": Reads(NEWEST_VERSION),
    "datafusion": Reads(NEWEST_VERSION),
    "trino": Reads(6, ("iceberg",)),
    "pyiceberg": Reads(mirrors=("iceberg",)),
    "deltalake": Reads(mirrors=("delta",)),
    "duckdb": Reads(mirrors=("delta", "iceberg")),
    "polars": Reads(mirrors=("delta", "iceberg")),
    "ray": Reads(mirrors=("delta", "iceberg")),
    "daft": Reads(mirrors=("delta",)),
}
"""By name; `spark` is one with Hudi 1.1 or later."""


def chosen(engines: Collection[str]) -> tuple[int | None, set[str]]:
    """The version of Hudi's table, None for the usual one, and the formats of mirrors that all `engines` need at least.

    An engine that reads Hudi's tables gets a version that it knows, unless a mirror that others need serves it, too.
    """
    reads = [ENGINES[engine] for engine in engines]
    mirrors = {each.mirrors[0] for each in reads if not each.version and len(each.mirrors) == 1}
    for each in reads:
        if not each.version and mirrors.isdisjoint(each.mirrors):
            mirrors.add(each.mirrors[0])
    version = min((each.version for each in reads if each.version and mirrors.isdisjoint(each.mirrors)), default=None)
    return (None if version == NEWEST_VERSION else version), mirrors


def mirror(formats: Collection[str], catalog: str, name: str) -> dict[str, Any]:
    """The file's field `mirror` of these formats; `catalog` is a connection, `name` the table's name."""
    fields = {"iceberg": {"catalog": catalog, "table": f"lake.{name}"}, "delta": {}}
    return {format_: fields[format_] for format_ in sorted(formats)}
