"""The columns of which Hudi's metadata table keeps bounds (hudi.apache.org/docs/indexes, read in 1.2.0).

Readers leave out files by these bounds with every option at its default. A wrong or missing bound hides rows, so a
column has bounds only if all of them are right and a query gains by them: docs/design.md has the types.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_provider_slshudi.config.options import BOUNDS, BOUNDS_OF
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.storage.files import Storage

_DEFINITIONS = ".hoodie/.index_defs/index.json"
_DEFINED = "hoodie.table.index.defs.path"
PARTITIONS = "hoodie.table.metadata.partitions"
_INDEX = "column_stats"
_FOREIGN = ("expr_index_", "secondary_index_")


def options(pipeline: Pipeline, schema: str, columns: Collection[str] | None = None) -> dict[str, str]:
    """A writer's options about bounds, for a table that has bounds of `columns`. `schema` is the table's, as Avro.

    No further column gets bounds, since existing files lack them. If one of `columns` is not wanted any more, all
    bounds go: partitions would keep that column's, which hide rows of later files.
    """
    bounded_columns = wanted(pipeline, schema)
    if columns is not None:
        bounded_columns = (
            [name for name in bounded_columns if name in columns] if set(columns) <= set(bounded_columns) else []
        )
    return {BOUNDS: "true", BOUNDS_OF: ",".join(bounded_columns)} if bounded_columns else {BOUNDS: "false"}


def wanted(pipeline: Pipeline, schema: str) -> list[str]:
    """The table's columns of which the pipeline's file wants bounds: new files have no others."""
    return [field["name"] for field in json.loads(schema)["fields"] if field["name"] in pipeline.bounded]


@dataclass(frozen=True)
class Indexes:
    """The indexes that Hudi's metadata table has besides the list of the table's files.

    Attributes:
        bounded: columns that have bounds, without Hudi's own.
        foreign: indexes that a client made by SQL; batches do not keep them up to date.
        are_told: whether the table tells of which columns it has bounds, which tables of version 6 do not.
    """

    bounded: list[str]
    foreign: list[str]
    are_told: bool = True

    @classmethod
    def of(cls, storage: Storage, told: Mapping[str, str] | None = None) -> Indexes:
        """Reads them from the table's properties, which callers that have read them pass, and index definitions."""
        told = told or properties.read(storage) or {}
        index_document = storage.read_json(_DEFINITIONS) if _DEFINED in told else None
        definitions = index_document["indexDefinitions"] if index_document else {}
        indexed = _INDEX in told.get(PARTITIONS, "").split(",")
        sources = (definitions.get(_INDEX) or {}).get("sourceFields") or [] if indexed else []
        # A CREATE or DROP INDEX that was cut off leaves the definition or the partition without the other.
        index_names = {*definitions, *told.get(PARTITIONS, "").split(",")}
        return cls(
            [name for name in sources if name not in META_COLUMNS],
            sorted(name for name in index_names if name.startswith(_FOREIGN)),
            told.get(properties.VERSION) != str(FORMER_VERSION),
        )

    def require_kept(self, table: str) -> None:
        """Lets no batch begin or end while Hudi would update a foreign index with it.

        Raises:
            TableMismatch: there is a foreign index.
        """
        if self.foreign:
            raise TableMismatch(
                f"{table} has indexes that batches do not keep up to date: {', '.join(self.foreign)} (made by CREATE "
                "INDEX; of Hudi's indexes only bounds of columns are right for all values). `slshudi table mend` takes "
                "them off",
                table=table,
            )
