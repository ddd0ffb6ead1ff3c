"""A mirror as a Delta table: a log in the Hudi table's folder (delta-io.github.io/delta-rs, read in 1.6.6).

The log has to be in that folder: DuckDB and Polars read no absolute paths. Hudi's readers do not mind it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_slshudi.config.arrow import arrow_type
from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.mirror.following import PLACE_KEY, Columns, Telling
from airflow_provider_slshudi.mirror.table_changes import BaseFile, Change, Place, group_of
from airflow_provider_slshudi.storage import objectstore
from airflow_provider_slshudi.storage.files import DELTA_LOG, Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

APP_ID = "slshudi"
"""The application of the log's `txn` actions, whose version grows with each snapshot."""
CONFIGURATION = {
    "delta.checkpointInterval": "20",
    # VACUUM by another engine deletes what the log does not name, once it is older: batches under way, and files that
    # Hudi keeps for readers of older snapshots.
    "delta.deletedFileRetentionDuration": "interval 30 days",
    # Each entry of the log costs a commit something: see decision 0055.
    "delta.logRetentionDuration": "interval 1 days",
}


class DeltaMirror(Telling):
    """The Delta table of one pipeline."""

    def __init__(self, pipeline: Pipeline, storage: Storage) -> None:
        self._pipeline, self._storage = pipeline, storage
        super().__init__(pipeline.name, "delta", f"{self._uri}: its Delta mirror")
        self._table: DeltaTable | None = None
        self._version, self._is_behind = 0, False

    def close(self) -> None:
        """Nothing is kept open."""

    def place(self) -> Place | None:
        """Loads the log. None if there is none, or another client wrote its newest entry."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as error:
            raise self._refused(
                "deltalake, which needs Python 3.11, is not installed here: "
                "pip install 'airflow-provider-slshudi[delta]'"
            ) from error
        with self._asked():
            self._table, self._version, self._is_behind = None, 0, False
            try:
                self._table = table = DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                return None
            self._version = table.transaction_version(APP_ID) or 0
            (newest,) = table.history(1)
            return Place.parse(newest.get(PLACE_KEY))

    def files(self) -> frozenset[str]:
        """The files of the newest version."""
        with self._asked():
            return frozenset(self._named())

    def apply(self, change: Change, columns: Columns, summary: Mapping[str, str]) -> None:
        """Adds a version with one instant's change."""
        with self._asked():
            sizes = self._named() if change.superseded else {}
            removed = {path: size for path, size in sizes.items() if group_of(path) in change.superseded}
            self._write(change.added, removed, columns, summary)

    def reconcile(
        self, added: list[BaseFile], live: frozenset[str], columns: Columns, summary: Mapping[str, str]
    ) -> None:
        """Makes the table if there is none, and adds a version that names `live` alone.

        Args:
            added: files that the newest version does not name.
            live: paths within the table of all files.
            columns: the table's.
            summary: the version's metadata.
        """
        from deltalake.transaction import create_table_with_add_actions

        with self._asked():
            if self._table is not None:
                if self._table.deletion_vectors().read_all().num_rows:
                    raise self._refused(f"another engine deleted rows in it: delete {DELTA_LOG}, and it is made anew")
                removed = {path: size for path, size in self._named().items() if path not in live}
                self._write(added, removed, columns, summary)
                return
            create_table_with_add_actions(
                self._uri,
                _schema(columns),
                [self._add(file, columns) for file in added],
                partition_by=_partitions(columns),
                name=self._pipeline.table.name,
                configuration=CONFIGURATION,
                storage_options=self._options,
                commit_properties=self._commit(summary),
            )

    def release(self, files: Iterable[str]) -> list[str]:
        """Nothing is to be done: a Delta table promises no older version once its files are cleaned."""
        return []

    def _write(
        self, added: Iterable[BaseFile], removed: Mapping[str, int], columns: Columns, summary: Mapping[str, str]
    ) -> None:
        from deltalake.schema import PrimitiveType

        table = self._current()
        if table is None:
            raise self._failed("it was not loaded")
        partitions = _partitions(columns)
        if table.metadata().partition_columns != partitions:
            raise self._refused(f"it has other partitions than the Hudi table: delete {DELTA_LOG}, and it is made anew")
        schema = _schema(columns)
        actions: list[AddAction | RemoveAction] = [self._add(file, columns) for file in added]
        actions += [self._remove(path, size) for path, size in removed.items()]
        # Only mode overwrite changes the schema; by this filter, which no file meets, it removes none. (It would name
        # the files that stay twice in one version, which Delta's protocol forbids.)
        if table.schema() == schema:
            table.create_write_transaction(
                actions, "append", schema, partitions, commit_properties=self._commit(summary)
            )
        else:
            plain = [one.name for one in table.schema().fields if isinstance(one.type, PrimitiveType)]
            if not plain:
                raise self._refused(f"columns changed, and none is plain: delete {DELTA_LOG}, and it is made anew")
            table.create_write_transaction(
                actions,
                "overwrite",
                schema,
                partitions,
                [(plain[0], "in", [])],
                commit_properties=self._commit(summary),
            )
        self._is_behind = True

    def _commit(self, summary: Mapping[str, str]) -> CommitProperties:
        from deltalake.transaction import CommitProperties, Transaction

        place = Place.parse(summary[PLACE_KEY])
        completion = int(place.completion or 0) if place is not None else 0
        self._version = max(self._version + 1, completion)
        return CommitProperties(
            custom_metadata=dict(summary),
            # A retry repeats a version whose first answer was lost, and doubles its rows.
            max_commit_retries=0,
            app_transactions=[Transaction(APP_ID, self._version)],
        )

    def _current(self) -> DeltaTable | None:
        """The table with this run's own versions, which deltalake does not add by itself."""
        if self._table is not None and self._is_behind:
            self._table.update_incremental()
            self._is_behind = False
        return self._table

    def _named(self) -> dict[str, int]:
        """Path within the table and bytes of each file that the newest version names."""
        table = self._current()
        if table is None:
            return {}
        actions = table.get_add_actions()
        paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
        return {unquote(path): int(size) for path, size in zip(paths, sizes, strict=True)}

    def _add(self, file: BaseFile, columns: Columns) -> AddAction:
        from deltalake.transaction import AddAction

        value = columns.partition_value(file.partition)
        values = {} if columns.partition is None else {columns.partition: value}
        return AddAction(
            file.path, file.size, values, int(time.time() * 1000), True, json.dumps({"numRecords": file.rows})
        )

    def _remove(self, path: str, size: int) -> RemoveAction:
        from deltalake.transaction import RemoveAction

        return RemoveAction(path, True, int(time.time() * 1000), size)

    @property
    def _uri(self) -> str:
        """The table's folder; a local one as a path, of which no letter stands for another."""
        return self._storage.full("") if self._storage.is_local else self._storage.uri

    @property
    def _options(self) -> dict[str, str] | None:
        """What deltalake is told of the object store; it reads the variables of AWS itself."""
        if not objectstore.is_stored(self._uri):
            return None
        options = objectstore.arrow_options(self._uri)
        virtual = options.get("force_virtual_addressing", options["endpoint_override"] is None)
        store_options = {
            # A version is a file that must not be there yet.
            "conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(bool(virtual)).lower(),
            "aws_allow_http": str(str(options["endpoint_override"]).startswith("http://")).lower(),
        }
        return store_options


def _partitions(columns: Columns) -> list[str]:
    return [] if columns.partition is None else [columns.partition]


def _schema(columns: Columns) -> Schema:
    import pyarrow as pa
    from deltalake import Schema

    return Schema.from_arrow(pa.schema([(name, arrow_type(str(type_))) for name, type_ in columns.types]))
