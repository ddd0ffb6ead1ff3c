"""The columns and partition values that a mirror shows: the table's own, without Hudi's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import MirrorRefused
from airflow_provider_slshudi.hudi.evolution import TableSchema
from airflow_provider_slshudi.hudi.schema import META_COLUMNS, type_of_avro
from airflow_provider_slshudi.types.datatypes import DataType

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Columns:
    """Name and type of each column in the table's order, and the partition's column; None without partitions."""

    types: tuple[tuple[str, DataType], ...]
    partition: str | None

    @classmethod
    def of(cls, pipeline: Pipeline, schema: TableSchema) -> Columns:
        """The columns of the table's schema.

        Raises:
            MirrorRefused: a column has a type that no pipeline file can ask for.
        """
        types = []
        for field in schema.record["fields"]:
            name = field["name"]
            if name in META_COLUMNS:
                continue
            type_ = type_of_avro(field["type"])
            if type_ is None:
                raise MirrorRefused(
                    f"{pipeline.table.path}: column {name} has type {field['type']}, which a mirror cannot show",
                    pipeline=pipeline.name,
                    mirror="",
                )
            types.append((name, type_))
        partition = pipeline.table.partition
        return cls(tuple(types), None if partition is None else partition.name)

    def partition_value(self, folder: str) -> str | None:
        """The partition's value as text, from its folder `name=value`; None for NULL, and without partitions."""
        text = folder.partition("=")[2]
        if self.partition is None or text == NULL_FOLDER:
            return None
        return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)
