"""Which table a pipeline makes for the engines that will query it; docs/engines.md has the runs that show it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

EVERY = sys.maxsize
"""An engine reads every version."""


@dataclass(frozen=True)
class Reads:
    """What an engine reads.

    Attributes:
        version: the newest version of Hudi's tables; 0 where it reads none of ours.
        mirrors: the formats of mirrors, the simplest one first.
    """

    version: int = 0
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A table for some engines.

    Attributes:
        version: of Hudi's table; None for the usual one.
        mirrors: their formats.
    """

    version: int | None
    mirrors: set[str]


FORMATS = ("delta", "iceberg")
"""Of mirrors, the simplest one first."""
USUAL = "spark"
ENGINES: Mapping[str, Reads] = {
    USUAL: Reads(EVERY),
    "spark-hudi-1.0": Reads(8),
    "spark-hudi-0.15": Reads(6),
    "spark-iceberg": Reads(mirrors=("iceberg",)),
    "hudi-rs": Reads(EVERY),
    "datafusion": Reads(EVERY),
    "trino": Reads(6, ("iceberg",)),
    "pyiceberg": Reads(mirrors=("iceberg",)),
    "deltalake": Reads(mirrors=("delta",)),
    "duckdb": Reads(mirrors=("delta", "iceberg")),
    "polars": Reads(mirrors=("delta", "iceberg")),
    "ray": Reads(mirrors=("delta", "iceberg")),
    "daft": Reads(mirrors=("delta",)),
}
"""By name; `spark` is one with Hudi 1.1 or later."""


def chosen(engines: Collection[str], formats: Collection[str] = FORMATS, by_value: bool = False) -> Choice:
    """What all `engines` need at least.

    An engine that reads Hudi's tables gets a version that it knows, unless a mirror that others need serves it, too.

    Args:
        engines: of `ENGINES`.
        formats: those of mirrors that the table can have, the simplest one first.
        by_value: whether partitions are by a column's value: Trino's Hudi connector reads their NULL wrongly.

    Raises:
        ValueError: one of them reads no form that the table can have.
    """
    mirrors: set[str] = set()
    reads = {engine: ENGINES[engine] for engine in engines}
    if by_value and "trino" in reads:
        reads["trino"] = Reads(mirrors=reads["trino"].mirrors)
    needy = {
        engine: [one for one in each.mirrors if one in formats] for engine, each in reads.items() if not each.version
    }
    # Who has no choice first.
    for engine, fitting in sorted(needy.items(), key=lambda item: len(item[1])):
        if not fitting:
            raise ValueError(f"{engine} reads no mirror that a table at this path can have, and no Hudi table")
        if mirrors.isdisjoint(fitting):
            mirrors.add(fitting[0])
    versions = [each.version for each in reads.values() if each.version and mirrors.isdisjoint(each.mirrors)]
    version = min(versions, default=EVERY)
    return Choice(None if version == EVERY else version, mirrors)


def mirror(formats: Collection[str], catalog: str, name: str) -> dict[str, Any]:
    """The file's field `mirror` of these formats; `catalog` is a connection, `name` the table's name."""
    fields = {"iceberg": {"catalog": catalog, "table": f"lake.{name}"}, "delta": {}}
    return {format_: fields[format_] for format_ in sorted(formats)}
