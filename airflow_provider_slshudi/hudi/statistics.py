"""Of which columns Hudi's metadata table keeps bounds (hudi.apache.org/docs/indexes, read in 1.2.0).

Readers leave out files by these bounds with every option at its default. A bound that is wrong or missing hides rows,
so a column is there only where all its bounds are right, and where somebody gains by it: docs/design.md has the types.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from airflow_provider_slshudi.config import BOUNDS, BOUNDS_OF, Pipeline
from airflow_provider_slshudi.datatypes import has_bounds
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, type_of_avro
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline

_DEFINITIONS = ".hoodie/.index_defs/index.json"
_PARTITIONS = "hoodie.table.metadata.partitions"
_INDEX = "column_stats"


def options(pipeline: Pipeline, schema: str, columns: Collection[str] | None = None) -> dict[str, str]:
    """What a writer is told of bounds; of `columns` alone, where they are given. `schema` is the table's, as Avro."""
    kept = [name for name in wanted(pipeline, schema) if columns is None or name in columns]
    return {BOUNDS: "true", BOUNDS_OF: ",".join(kept)} if kept else {BOUNDS: "false"}


def wanted(pipeline: Pipeline, schema: str) -> list[str]:
    """The columns of the table that the pipeline's file wants bounds of."""
    asked = pipeline.bounded
    fields = json.loads(schema)["fields"]
    typed = {field["name"]: type_of_avro(field["type"]) for field in fields}
    return [
        name
        for name, type_ in typed.items()
        if type_ is not None and has_bounds(type_) and (asked is None or name in asked)
    ]


def of_all_files(storage: Storage, timeline: Timeline) -> list[str] | None:
    """The columns of which every file's bounds are known; None: the table has no files, so it may be any.

    A column that is named later has no bounds in the files that are there, which readers would take for NULL.
    """
    return indexed(storage) if timeline.completed(*CHANGES) else None


def indexed(storage: Storage) -> list[str]:
    """The table's columns of which there are bounds, Hudi's own left out."""
    if _INDEX not in (properties.read(storage) or {}).get(_PARTITIONS, "").split(","):
        return []
    content = storage.read(_DEFINITIONS)
    definitions = json.loads(content)["indexDefinitions"] if content else {}
    sources = (definitions.get(_INDEX) or {}).get("sourceFields") or []
    return [name for name in sources if name not in META_COLUMNS]
