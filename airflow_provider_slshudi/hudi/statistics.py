"""Of which columns Hudi's metadata table keeps bounds (hudi.apache.org/docs/indexes, read in 1.2.0).

Readers leave out files by these bounds with every option at its default. A bound that is wrong or missing hides rows,
so a column is there only where all its bounds are right, and where somebody gains by it: docs/design.md has the types.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from airflow_provider_slshudi.config.options import BOUNDS, BOUNDS_OF
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.schema import META_COLUMNS
from airflow_provider_slshudi.storage import Storage

_DEFINITIONS = ".hoodie/.index_defs/index.json"
_DEFINED = "hoodie.table.index.defs.path"
_PARTITIONS = "hoodie.table.metadata.partitions"
_INDEX = "column_stats"
_FOREIGN = ("expr_index_", "secondary_index_")


def options(pipeline: Pipeline, schema: str, columns: Collection[str] | None = None) -> dict[str, str]:
    """What a writer is told of bounds, where the table has those of `columns`. `schema` is the table's, as Avro.

    It gets none beside these, since files that are there would lack them. Where one of these is not wanted any more
    all go: partitions keep theirs of that one, and rows of others are hidden by it.
    """
    kept = wanted(pipeline, schema)
    if columns is not None:
        kept = [name for name in kept if name in columns] if set(columns) <= set(kept) else []
    return {BOUNDS: "true", BOUNDS_OF: ",".join(kept)} if kept else {BOUNDS: "false"}


def wanted(pipeline: Pipeline, schema: str) -> list[str]:
    """The columns of the table that the pipeline's file names and wants bounds of: new files have no others."""
    return [field["name"] for field in json.loads(schema)["fields"] if field["name"] in pipeline.bounded]


@dataclass(frozen=True)
class Indexes:
    """What Hudi's metadata table keeps of the table besides the list of its files.

    Attributes:
        bounded: columns of which there are bounds, Hudi's own left out.
        foreign: indexes that somebody made by SQL, and that batches do not keep.
    """

    bounded: list[str]
    foreign: list[str]

    @classmethod
    def of(cls, storage: Storage) -> Indexes:
        """As it is now."""
        told = properties.read(storage) or {}
        content = storage.read(_DEFINITIONS) if _DEFINED in told else None
        definitions = json.loads(content)["indexDefinitions"] if content else {}
        indexed = _INDEX in told.get(_PARTITIONS, "").split(",")
        sources = (definitions.get(_INDEX) or {}).get("sourceFields") or [] if indexed else []
        # Either may be there without the other, where who made it or took it off was cut off.
        known = {*definitions, *told.get(_PARTITIONS, "").split(",")}
        return cls(
            [name for name in sources if name not in META_COLUMNS],
            sorted(name for name in known if name.startswith(_FOREIGN)),
        )

    def require_kept(self, table: str) -> None:
        """Lets no batch begin, or end, that Hudi would have keep an index of somebody else's.

        Raises:
            TableMismatch: there is one.
        """
        if self.foreign:
            raise TableMismatch(
                f"{table} has indexes that batches do not keep: {', '.join(self.foreign)} (made by CREATE INDEX; of "
                "Hudi's only bounds of columns are right for all values). `slshudi table mend` takes them off",
                table=table,
            )
