"""What OpenLineage is told of committed batches: made of the pipeline's file and the ledger alone.

Airflow's OpenLineage provider, where it is installed, calls the methods in a process of its own and sends what they
return. An error there changes nothing for the step. Without the provider nothing of it is imported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_slshudi import dagfile, settings
from airflow_provider_slshudi.config.sources import STRIDE, place_of
from airflow_provider_slshudi.config.values import scheme_and_place
from airflow_provider_slshudi.operators.base import PipelineTask

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperator
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import DatasetFacet, column_lineage_dataset, schema_dataset

    from airflow_provider_slshudi.config.columns import Column
    from airflow_provider_slshudi.config.pipeline import Pipeline
    from airflow_provider_slshudi.config.sources import Logstore
    from airflow_provider_slshudi.ledger.records import Transaction
    from airflow_provider_slshudi.planning.ranges import Range
    from airflow_provider_slshudi.transaction.context import Work

_log = logging.getLogger(__name__)
_PROVIDER = "airflow.providers.openlineage"
_MOST_RANGES = 1_000
"""Ranges that an event lists at most: those who receive events refuse large ones."""


@dataclass(frozen=True)
class Batch:
    """A committed batch: its transaction with its manifest, and its ranges."""

    transaction: Transaction
    ranges: list[Range]


class LineageTask(PipelineTask):
    """A task that may commit batches, and then tells lineage of them."""

    _batches: Sequence[Batch] = ()

    def remember(self, work: Work, committed: Iterable[Transaction]) -> None:
        """Reads what lineage is told of these batches, if it is installed.

        It is read here, since a process that is forked must not use the ledger's connections.
        """
        if find_spec(_PROVIDER) is None:
            return
        try:
            ids = [transaction.id for transaction in committed]
            self._batches = [Batch(work.ledger.get(id_), work.ledger.ranges(id_)) for id_ in ids]
        except Exception as error:
            _log.warning("lineage is not told what was committed: %s", error)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """What the task committed; empty if it committed nothing."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        return lineage(self._known(), self._batches) if self._batches else OperatorLineage()

    def _known(self) -> Pipeline:
        """The pipeline, as the task has read it if it came so far."""
        if self._work is not None:
            return self._work.pipeline
        dag = cast("BaseOperator", self).get_dag()
        return settings.pipeline(self.pipeline, None if dag is None else dagfile.of(dag), self.connections)


class CommitLineageTask(LineageTask):
    """A task whose job it is to commit: lineage knows its tables also before it has, or if it fails."""

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """The logstore and the table."""
        return lineage(self._known())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """The logstore and the table: whether the batch is in it, the next settle finds out, and tells."""
        return lineage(self._known())


def lineage(pipeline: Pipeline, batches: Sequence[Batch] = ()) -> OperatorLineage[Any, Any]:
    """The datasets of a pipeline, with what some batches together read and wrote."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_slshudi.hudi.beside import Beside, route_keys, table_of
    from airflow_provider_slshudi.ledger.records import Kind

    replays = [batch for batch in batches if batch.transaction.kind is Kind.REPLAY]
    reads = [batch for batch in batches if batch.transaction.kind is not Kind.REPLAY]
    inputs, outputs = [], [_table(pipeline, batches, of_logs=bool(reads or not batches))]
    if reads or not batches:
        inputs += [_logstore(pipeline, place, reads) for place in range(len(pipeline.source.logstores))]
    aside = table_of(pipeline)
    if replays:
        inputs.append(_dataset_read(aside))
    if quarantined := sum(_fact(batch, "quarantined") or 0 for batch in reads):
        outputs.append(_rows_of(aside, quarantined))
    for key in route_keys(pipeline):
        rows = sum(_routed(batch).get(key, 0) for batch in batches)
        outputs.append(_rows_of(Beside(key, pipeline).pipeline, rows if batches else None))
    return OperatorLineage(inputs=inputs, outputs=outputs)


def logstore_name(logstore: Logstore) -> tuple[str, str]:
    """Namespace and name of a logstore.

    OpenLineage names no log service. Its rule for all is that both make a URI, the namespace `scheme:[//authority]` of
    the place and the name a path within: so this is the identity that the ledger has.
    """
    return f"sls://{logstore.project}", logstore.logstore


def table_name(path: str) -> tuple[str, str]:
    """Namespace and name of a table, by OpenLineage's naming of files and of S3 (openlineage.io/docs/spec/naming).

    Spark's integration names a table by its path in the same way, so that jobs which read it find this one.
    """
    scheme, place = scheme_and_place(path)
    if scheme == "file":
        return scheme, place
    bucket, _, key = place.partition("/")
    # s3a:// is Hadoop's way to the same store. What is before an @ may be a secret.
    return f"{scheme.removesuffix('a')}://{bucket.rpartition('@')[2]}", key.lstrip("/")


def _logstore(pipeline: Pipeline, place: int, batches: Sequence[Batch]) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import InputDatasetFacet, base_subset_dataset, input_statistics_input_dataset

    facets: dict[str, InputDatasetFacet] = {}
    # A batch's totals are of all its logstores.
    if batches and not pipeline.source.also:
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=sum(batch.transaction.rows for batch in batches),
            size=sum(batch.transaction.bytes for batch in batches),
        )
    read = (item for batch in batches for item in batch.ranges if not item.gap)
    ranges = [item for item in read if place_of(item.shard) == place]
    if 0 < len(ranges) <= _MOST_RANGES:
        parts = [
            base_subset_dataset.Partition(
                # As texts: cursors are too large for the numbers of some who read JSON.
                dimensions={"shard": str(item.shard % STRIDE), "begin": str(item.begin), "end": str(item.end)},
                identifier=str(item),
            )
            for item in sorted(ranges)
        ]
        facets["subset"] = base_subset_dataset.InputSubsetInputDatasetFacet(
            inputCondition=base_subset_dataset.PartitionSubsetCondition(partitions=parts)
        )
    keys = dict.fromkeys(key for column in pipeline.columns for key in pipeline.keys_of(column))
    fields = _schema((key, "string") for key in keys)
    return InputDataset(*logstore_name(pipeline.source.logstores[place]), facets, facets={"schema": fields})


def _table(pipeline: Pipeline, batches: Sequence[Batch], of_logs: bool) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import OutputDatasetFacet, output_statistics_output_dataset

    facets = _facets(pipeline)
    if of_logs:
        facets["columnLineage"] = _column_lineage(pipeline)
    output_facets: dict[str, OutputDatasetFacet] = {}
    if batches:
        facets["version"] = _version(batches)
        output_facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=_sum(map(_rows, batches)),
            size=_sum(_fact(batch, "stored") for batch in batches),
            fileCount=_sum(_fact(batch, "files") for batch in batches),
        )
    return OutputDataset(*table_name(pipeline.table.path), output_facets, facets=facets)


def _rows_of(beside: Pipeline, rows: int | None) -> OutputDataset:
    """A table beside the main one, with the rows that it got; None: nothing is known of them."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import OutputDatasetFacet, output_statistics_output_dataset

    facets: dict[str, OutputDatasetFacet] = {}
    if rows is not None:
        facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
    return OutputDataset(*table_name(beside.table.path), facets, facets=_facets(beside))


def _dataset_read(aside: Pipeline) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*table_name(aside.table.path), facets=_facets(aside))


def _facets(pipeline: Pipeline) -> dict[str, DatasetFacet]:
    """What the pipeline's file says of its table: columns, and its name in the metastore."""
    from openlineage.client.facet_v2 import symlinks_dataset

    from airflow_provider_slshudi.hudi.schema import table_columns

    facets: dict[str, DatasetFacet] = {"schema": _schema(table_columns(pipeline))}
    if pipeline.catalog is not None:
        first = pipeline.catalog.metastore.split(",")[0].replace("thrift://", "hive://", 1)
        name = f"{pipeline.catalog.database}.{pipeline.catalog.table or pipeline.table.name}"
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([symlinks_dataset.Identifier(first, name, "TABLE")])
    return facets


def _schema(columns: Iterable[tuple[str, str]]) -> schema_dataset.SchemaDatasetFacet:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [
        schema_dataset.SchemaDatasetFacetFields(name, type_, ordinal_position=position)
        for position, (name, type_) in enumerate(columns, 1)
    ]
    return schema_dataset.SchemaDatasetFacet(fields)


def _version(batches: Sequence[Batch]) -> DatasetFacet:
    """The table as of the newest of these commits."""
    from openlineage.client.facet_v2 import dataset_version_dataset

    newest = max((batch.transaction for batch in batches), key=lambda item: item.completed or "")
    return dataset_version_dataset.DatasetVersionDatasetFacet(str(newest.instant))


def _column_lineage(pipeline: Pipeline) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    """The log key of each column. The rest column holds all other keys, which no column names; it is left out."""
    from openlineage.client.facet_v2 import column_lineage_dataset

    from airflow_provider_slshudi.config.table import EventTimePartition

    fields = {}
    for column in pipeline.columns:
        for name in (column.name, *column.renamed_from):
            fields[name] = _of_key(pipeline, column, _conversion(column))
    partition = pipeline.table.partition
    if isinstance(partition, EventTimePartition):
        (column,) = (column for column in pipeline.columns if column.name == partition.column)
        fields[partition.name] = _of_key(pipeline, column, f"{partition.every} of {column.name}, {partition.timezone}")
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields)


def _of_key(pipeline: Pipeline, column: Column, description: str) -> column_lineage_dataset.Fields:
    from openlineage.client.facet_v2 import column_lineage_dataset

    subtype = "TRANSFORMATION" if description else "IDENTITY"
    how = column_lineage_dataset.Transformation("DIRECT", subtype, description or None)
    keys = pipeline.keys_of(column)
    names = [logstore_name(logstore) for logstore in pipeline.source.logstores]
    fields = [column_lineage_dataset.InputField(*name, key, [how]) for name in names for key in keys]
    return column_lineage_dataset.Fields(fields)


def _conversion(column: Column) -> str:
    """What becomes of a key's text on its way into the column; empty if it stays as it is."""
    if column.expr is not None:
        return f"{column.expr} as {column.type}"
    if column.path is None and column.type == "string":
        return ""
    written = ", ".join(filter(None, (column.format, column.timezone)))
    return f"{column.path or 'value'} as {column.type}{f' ({written})' if written else ''}"


def _rows(batch: Batch) -> int | None:
    """Rows that the batch brought into the table; None if the ledger does not know."""
    from airflow_provider_slshudi.ledger.records import Kind

    if batch.transaction.kind is Kind.REPLAY:
        return _fact(batch, "moved")
    if batch.transaction.manifest is None:
        return None
    elsewhere = (_fact(batch, "quarantined") or 0) + sum(_routed(batch).values())
    return batch.transaction.rows - elsewhere - (_fact(batch, "dropped") or 0)


def _routed(batch: Batch) -> dict[str, int]:
    """The rows of each route's table, by its key."""
    return dict((batch.transaction.manifest or {}).get("routed") or {})


def _fact(batch: Batch, name: str) -> int | None:
    fact = (batch.transaction.manifest or {}).get(name)
    return None if fact is None else int(fact)


def _sum(counts: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    all_counts = list(counts)
    return None if None in all_counts else sum(count for count in all_counts if count is not None)
