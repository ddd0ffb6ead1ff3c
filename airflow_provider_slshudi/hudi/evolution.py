"""How a table's columns change with the pipeline's file, and which changes are refused.

A table's schema is the one that its newest commit by request time carries: Spark and hudi-rs take it so. Columns are
added or become wider; none is taken away. Readers give NULL for a column that a base file lacks, so files of any age
can be read. Runs showed which type may become which (docs/decisions/0016): Spark and hudi-rs read each such pair
alike, in snapshot and incremental queries and through every filter, and the pair survives clustering.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_provider_slshudi.config.datatypes import MOST_DIGITS, DataType, Decimal, Scalar, Struct, parse_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ColumnMismatch
from airflow_provider_slshudi.handover import batch_files
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.schema import avro_schema, decimal_bytes, nullable_field, table_columns, type_of_avro
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage

SCHEMA_KEY = "schema"
"""Hudi's key for the table's schema in a commit's extra metadata."""

_WRITTEN_ANEW = "rows of a table with `upsert` are written anew with the file's columns: keep this one in the file"
_WIDER = {"int": ("bigint", "double"), "float": ("double",)}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CREATE_SCHEMA = "hoodie.table.create.schema"


class Kind(str, Enum):
    """How a column changes."""

    ADDED = "added"
    RENAMED = "renamed"
    WIDENED = "widened"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """A column that differs between table and file; types are text, empty where the column is missing.

    `note` says what becomes of the column, or what to do if the change is refused.
    """

    kind: Kind
    column: str
    there: str
    wanted: str
    note: str


@dataclass(frozen=True)
class TableSchema:
    """The table's schema as readers take it, an Avro record; `instant` carries it, and is empty if none does."""

    record: dict[str, Any]
    instant: str

    @property
    def text(self) -> str:
        """The record as JSON."""
        return json.dumps(self.record)


def schema_of_now(storage: Storage, timeline: Timeline) -> TableSchema | None:
    """The table's schema; None if there is no table, or it states no schema.

    Reads commits from the newest on until one carries a schema, as a rule the first.
    """
    for instant in reversed(timeline.completed(*CHANGES)):
        text = timeline.extra_metadata(instant).get(SCHEMA_KEY)
        if text:
            return TableSchema(json.loads(text), instant.time)
    text = (properties.read(storage) or {}).get(_CREATE_SCHEMA)
    return None if text is None else TableSchema(json.loads(text), "")


def changes(now: TableSchema, pipeline: Pipeline) -> list[Change]:
    """The differences between the table and the pipeline's file: the file's columns first, in its order."""
    avro_types = {field["name"]: field["type"] for field in now.record["fields"]}
    former = {name for column in pipeline.columns for name in column.renamed_from}
    renamed = {column.name: column.renamed_from for column in pipeline.columns if column.renamed_from}
    column_types = dict(table_columns(pipeline))
    column_changes = [
        _change(name, type_, avro_types, pipeline, former, renamed) for name, type_ in column_types.items()
    ]
    upserts = pipeline.table.upsert is not None
    kind = Kind.REFUSED if upserts else Kind.DROPPED
    note = _WRITTEN_ANEW if upserts else "stays in the table, and is NULL in rows from now on"
    removals = [
        Change(kind, name, _named(avro), "", note) for name, avro in avro_types.items() if name not in column_types
    ]
    return [change for change in column_changes if change is not None] + removals


def require_fit(storage: Storage, timeline: Timeline, pipeline: Pipeline) -> list[Change]:
    """The changes that the next batch brings; none where there is no table yet.

    Raises:
        ColumnMismatch: a change is not possible; the message names each such column with both types.
    """
    now = schema_of_now(storage, timeline)
    column_changes = changes(now, pipeline) if now is not None else []
    refused = [change for change in column_changes if change.kind is Kind.REFUSED]
    if refused:
        raise _mismatch(storage, pipeline, refused)
    return column_changes


def schema_to_commit(storage: Storage, timeline: Timeline, pipeline: Pipeline | None = None) -> str | None:
    """The schema that the next commit has to carry: the table's, joined with those recorded for pending instants.

    With `pipeline` also its columns, even if the pipeline's file has changed since. None if no schema is known. The
    newest commit by request time may come from an older file than a commit that completes later; since it carries all
    schemas recorded by then, readers still see all columns.

    Raises:
        ColumnMismatch: the pipeline's columns and the table's have no type in common.
    """
    now = schema_of_now(storage, timeline)
    records = [now.record] if now is not None else []
    for instant in timeline.pending():
        text = batch_files.read_schema(storage, instant.time)
        if text is not None:
            records.append(json.loads(text))
    if pipeline is not None:
        records.append(json.loads(avro_schema(pipeline)))
    if not records:
        return None
    joined = records[0]
    for record in records[1:]:
        joined, conflicts = _joined(joined, record)
        if conflicts:
            assert pipeline is not None  # noqa: S101  what was recorded fits
            raise _mismatch(storage, pipeline, conflicts)
    return json.dumps(joined)


def shows(now: TableSchema | None, schema: str) -> bool:
    """Whether a table of the schema `now` has all columns of `schema`, none of them narrower."""
    if now is None:
        return False
    joined, conflicts = _joined(now.record, json.loads(schema))
    return not conflicts and joined == _joined(now.record, now.record)[0]


def evolved(there: DataType, wanted: DataType) -> DataType | None:
    """The type that joins `there`, the table's type, with `wanted`, the pipeline file's; None if no type does.

    It is `wanted`; a struct also keeps the fields that only the table has. Fields of a struct column may come and go.
    Nothing else within a column may change: there Spark's vectorised reader fails at types other than the base file's,
    and its row reader fails at fields within arrays and maps that the base file lacks.
    """
    if there == wanted or _is_wider(wanted, there):
        return wanted
    if not (isinstance(there, Struct) and isinstance(wanted, Struct)):
        return None
    fields = dict(there.fields)
    for name, type_ in wanted.fields:
        if fields.setdefault(name, type_) != type_:
            return None
    alike = {name.lower() for name in fields}
    return Struct(tuple(fields.items())) if len(alike) == len(fields) else None


def _join(one: DataType, other: DataType) -> DataType | None:
    """The type that reads base files of either type; None if there is none."""
    return evolved(one, other) or evolved(other, one)


def _is_wider(type_: DataType, than: DataType) -> bool:
    if isinstance(type_, Decimal) and isinstance(than, Decimal):
        if type_.scale == than.scale:
            # Spark reads a decimal from as many bytes as the file has for it, and fails if the new type needs more.
            return type_.precision > than.precision and decimal_bytes(type_) == decimal_bytes(than)
        return type_.scale > than.scale and type_.precision - type_.scale >= than.precision - than.scale
    return isinstance(type_, Scalar) and isinstance(than, Scalar) and type_.name in _WIDER.get(than.name, ())


def _joined(record: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """The first record with the other's columns, all nullable; and the columns that have no common type."""
    fields: dict[str, dict[str, Any]] = {field["name"]: _nullable(field) for field in record["fields"]}
    conflicts = []
    for field in other["fields"]:
        name = field["name"]
        if name not in fields:
            type_ = type_of_avro(field["type"])
            fields[name] = nullable_field(name, type_, record) if type_ is not None else _nullable(field)
            continue
        first_type, other_type = type_of_avro(fields[name]["type"]), type_of_avro(field["type"])
        joined = _join(first_type, other_type) if first_type is not None and other_type is not None else None
        if joined is not None and joined != first_type:
            fields[name] = nullable_field(name, joined, record)
        elif joined is None and fields[name]["type"] != _nullable(field)["type"]:
            note = "two pending batches write it with different types: let one of them be rolled back"
            conflicts.append(Change(Kind.REFUSED, name, _named(fields[name]["type"]), _named(field["type"]), note))
    return {**record, "fields": list(fields.values())}, conflicts


def _nullable(field: Mapping[str, Any]) -> dict[str, Any]:
    types = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return {**field, "type": ["null", *(part for part in types if part != "null")], "default": None}


def _change(
    name: str,
    type_: str,
    there: Mapping[str, Any],
    pipeline: Pipeline,
    former: set[str],
    renamed: Mapping[str, list[str]],
) -> Change | None:
    if name not in there:
        other = next((column for column in there if column.lower() == name), None)
        if other is not None:
            note = f"the table has {other}, and readers do not tell the two apart: choose another name"
            return Change(Kind.REFUSED, name, _named(there[other]), type_, note)
        if name in former:
            return Change(Kind.REFUSED, name, "", type_, "`renamed_from` names it, and the table has no such column")
        before = [column for column in renamed.get(name, ()) if column in there]
        if before:
            note = f"a new column; {', '.join(before)} has the same values from now on"
            return Change(Kind.RENAMED, name, "", type_, note)
        return Change(Kind.ADDED, name, "", type_, "NULL in rows until now")
    table_type, pipeline_type = type_of_avro(there[name]), parse_type(type_)
    becomes = evolved(table_type, pipeline_type) if table_type is not None else None
    exact = pipeline.table.upsert is not None
    if becomes is not None and becomes == table_type and (pipeline_type == table_type or not exact):
        return None
    if becomes is None:
        may = ", ".join(_wider_names(table_type))
        able = f"it may become {may}" if may else "it may become nothing else"
        note = f"{able}; or give the new type another column, with this one's key"
    elif name in _kept(pipeline):
        note = "a column that keys or partitions are made of, or that orders rows, keeps its type"
    elif exact:
        note = (
            "columns of a table with `upsert` keep their types: give the new type another column, with this one's key"
        )
    else:
        return Change(Kind.WIDENED, name, str(table_type), str(becomes), "what was written is read as the wider type")
    return Change(Kind.REFUSED, name, _named(there[name]), type_, note)


def _wider_names(type_: DataType | None) -> Iterator[str]:
    if isinstance(type_, Scalar):
        yield from _WIDER.get(type_.name, ())
    elif isinstance(type_, Decimal):
        same_scale = (Decimal(precision, type_.scale) for precision in range(type_.precision + 1, MOST_DIGITS + 1))
        yield from (str(other) for other in same_scale if _is_wider(other, type_))
        yield "a decimal with more digits behind the point and no fewer before it"


def _kept(pipeline: Pipeline) -> set[str]:
    """The columns that keys or partitions are made of, or that decide which row wins."""
    partition, upsert = pipeline.table.partition, pipeline.table.upsert
    fixed_columns = {partition.name} if partition is not None else set()
    if upsert is not None:
        named = (*upsert.record_key, upsert.ordering_field, upsert.delete_marker)
        fixed_columns |= {name for name in named if name is not None}
    return fixed_columns


def _named(avro: Any) -> str:
    """A field's type as a pipeline file spells it; as Avro's JSON if no pipeline file can have it."""
    type_ = type_of_avro(avro)
    return str(type_) if type_ is not None else json.dumps(avro)


def _mismatch(storage: Storage, pipeline: Pipeline, refused: list[Change]) -> ColumnMismatch:
    listed = "; ".join(
        f"{change.column}: {change.there or 'no such column'} there, {change.wanted or 'none'} in the file "
        f"({change.note})"
        for change in refused
    )
    return ColumnMismatch(
        f"{storage.uri}: pipeline {pipeline.name} asks for types that the table's columns cannot change to, so "
        f"nothing is written: {listed}",
        table=storage.uri,
        columns=tuple((change.column, change.there, change.wanted) for change in refused),
    )
