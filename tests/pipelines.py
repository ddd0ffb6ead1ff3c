"""Pipelines for tests, made from one description."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import Table

TABLE_VERSION = "SLSHUDI_TEST_TABLE_VERSION"
"""Variable with Hudi's version of the tables that tests make; the newest one without it."""


def table_version(**changes: Any) -> int | None:
    """The version of a table that tests make; None where that version cannot have these fields."""
    if TABLE_VERSION not in os.environ:
        return None
    table = {"path": "file:///t", "name": "t", "version": int(os.environ[TABLE_VERSION]), **changes}
    try:
        return Table.model_validate(table).version
    except ValidationError:
        return None


FIFTHS = [{"name": f"fifth_{number}", "where": f"cast(price * 4 as bigint) % 5 = {number}"} for number in range(1, 5)]
"""Routes by the events' numbers: one whose number is a multiple of five is in the main table."""


def fifth_of(name: str) -> int:
    """Where `FIFTHS` send an event: 0 is the main table, 1 the first route's."""
    return int(name.removeprefix("event-")) % 5


def ad_events(location: Path | str, **changes: Any) -> Pipeline:
    """A small pipeline into `location`, a directory or URI; `changes` replace top-level fields."""
    path = f"file://{location}" if isinstance(location, Path) else location
    description: dict[str, Any] = {
        "name": "ad_events",
        "source": {"project": "ads", "logstore": "events"},
        "table": {
            "path": path,
            "name": "ad_events",
            "partition": {"by": "event_time", "column": "event_time"},
            "version": table_version(),
        },
        "columns": [
            {"name": "event_id"},
            {"name": "event_time", "type": "timestamp", "format": "millis", "key": "ts"},
            {"name": "price", "type": "double"},
            {"name": "clicks", "type": "bigint"},
        ],
        "rest_column": "rest",
    }
    return Pipeline.model_validate({**description, **changes})


def wide(location: Path | str, **changes: Any) -> Pipeline:
    """The same with 900 columns more: longer than what Linux takes as one argument."""
    described = ad_events(location, **changes).model_dump(mode="json")
    more = [{"name": f"a_column_with_a_name_of_some_length_{number}", "type": "bigint"} for number in range(900)]
    return Pipeline.model_validate({**described, "columns": [*described["columns"], *more]})


def served_often(location: Path | str, **changes: Any) -> Pipeline:
    """The same with so little kept that a few commits give every table service something to do.

    Hudi archives nothing that the metadata table has not compacted.
    """
    made = ad_events(location, **changes)
    options = {**made.table.options, "hoodie.metadata.compact.max.delta.commits": "1"}
    kept = {"keep": {"commits": 1}, "min_commits": 2, "max_commits": 3}
    described = made.model_dump(mode="json")
    return Pipeline.model_validate(
        {**described, "table": {**described["table"], "options": options}, "maintenance": kept}
    )


def upserted_often(location: Path | str, **changes: Any) -> Pipeline:
    """The same into a Merge-On-Read table, each event under its id."""
    described = served_often(location, **changes).model_dump(mode="json")
    merged = {"type": "merge_on_read", "upsert": {"record_key": "event_id", "buckets": 2}}
    keyed = {**described["table"], **merged, "version": table_version(**merged)}
    kept = {**described["maintenance"], "compact_after": 2}
    return Pipeline.model_validate({**described, "table": keyed, "maintenance": kept})


def customers(
    location: Path | str, type_: str = "merge_on_read", source: dict[str, str] | None = None, **changes: Any
) -> Pipeline:
    """A pipeline whose logs upsert rows; `changes` replace fields of the table's `upsert`."""
    path = f"file://{location}" if isinstance(location, Path) else location
    upsert = {"record_key": "id", "ordering_field": "updated_at", "delete_marker": "is_deleted", "buckets": 4}
    merged = {"type": type_, "upsert": {**upsert, **changes}}
    return Pipeline.model_validate(
        {
            "name": "customers",
            "source": source or {"project": "ads", "logstore": "customers"},
            "table": {
                "path": path,
                "name": "customers",
                "partition": {"by": "field", "column": "region"},
                "version": table_version(**merged),
                **merged,
            },
            "columns": [
                {"name": "id"},
                {"name": "number", "type": "bigint"},
                {"name": "updated_at", "type": "bigint"},
                {"name": "is_deleted", "type": "boolean"},
                {"name": "name"},
                {"name": "score", "type": "double"},
                {"name": "region"},
            ],
        }
    )
