"""Pipelines of a fleet that are in trouble, or have far more logs than the others, which must not notice."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from airflow_provider_slshudi.hudi.layout import PROPERTIES
from airflow_provider_slshudi.sls.connection import SlsConnection

BROKEN, REFUSED, HOT = "broken", "refused", "hot"
REFUSED_CONNECTION = "sls_refused"
HOT_MB = 4.0
"""Raw MB a second into the one shard of `hot`; the service takes five."""


def refused(given: SlsConnection) -> dict[str, str]:
    """The variable of the connection whose key the service refuses."""
    fields = {"host": f"http://{given.endpoint}", "login": given.access_key_id, "password": "another"}
    described = {"conn_type": "sls", "extra": {"auth_version": "v1"}, **fields}
    return {f"AIRFLOW_CONN_{REFUSED_CONNECTION.upper()}": json.dumps(described)}


def break_table(table: Path) -> None:
    """Leaves a table that nobody can read or write."""
    (table / PROPERTIES).write_text("not what Hudi wrote", encoding="utf-8")


def rows_of(table: Path) -> int:
    """Rows of a table that was only appended to, by the footers of its base files."""
    return sum(pq.read_metadata(file).num_rows for file in table.glob("*/*.parquet"))
