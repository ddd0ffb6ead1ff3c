"""Engines that no run of this program shows, and what their own documentation or source says they ship."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unrun:
    """An engine that is not run here: what it ships, and where that stands."""

    engine: str
    ships: str
    source: str
    address: str


UNRUN: tuple[Unrun, ...] = (
    Unrun("Trino 479 and later", "Hudi 1.1.0", "trinodb/trino#27494", "https://github.com/trinodb/trino/pull/27494"),
    Unrun(
        "Presto's server",
        "Hudi 0.14.0 until September 2026, then 1.1.0",
        "prestodb/presto#26607",
        "https://github.com/prestodb/presto/issues/26607",
    ),
    Unrun(
        "Amazon EMR",
        "Hudi 1.0.2 from emr-7.11.0 on, 0.15.0 from emr-7.3.0 on",
        "EMR's release history of Hudi",
        "https://docs.aws.amazon.com/emr/latest/ReleaseGuide/Hudi-release-history.html",
    ),
    Unrun(
        "Amazon Athena",
        "Hudi 0.14.0, or 0.15.0 by a property of the table",
        "Athena's considerations for Hudi",
        "https://docs.aws.amazon.com/athena/latest/ug/querying-hudi-in-athena-considerations-and-limitations.html",
    ),
)
