"""A mirror as an Iceberg table in a catalog (py.iceberg.apache.org, read in 0.12.0).

The table's folder is never Iceberg's: the mirror's location lies outside of it, and with `gc.enabled=false` other
engines refuse to delete files that snapshots name (iceberg.apache.org/docs/latest/configuration).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import IcebergMirror as Settings
from airflow_provider_slshudi.mirror.following import PLACE_KEY, Columns, Telling
from airflow_provider_slshudi.mirror.iceberg_types import name_mapping, partition_value, schema_of, spec_of
from airflow_provider_slshudi.mirror.table_changes import BaseFile, Change, Place, group_of
from airflow_provider_slshudi.storage import objectstore
from airflow_provider_slshudi.storage.files import Storage

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def replacing(change: Transaction, io: FileIO, summary: Mapping[str, str]) -> Any:
    """A snapshot that replaces files, at a cost that does not grow with the number of snapshots before it.

    `overwrite()` of pyiceberg 0.12.0 merges no manifests, and reads and keeps for good those that only say what was
    deleted once: 0.4 CPU seconds a commit after 90 upserts. `merge_append()` does both right, and deletes nothing.
    """
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

    class Replacing(_OverwriteFiles, _MergeAppendFiles):
        """Deletes as the first does, and merges manifests as the second."""

        def _existing_manifests(self) -> list[ManifestFile]:
            manifests = super()._existing_manifests()
            return [one for one in manifests if one.has_added_files() or one.has_existing_files()]

    return Replacing(operation=Operation.OVERWRITE, transaction=change, io=io, snapshot_properties=dict(summary))


NAME = "name"
"""Beside pyiceberg's properties of a catalog: its name, by which a SQL catalog tells its tables from others'."""
_MAPPING = "schema.name-mapping.default"
PROPERTIES = {
    # Other engines' expiry and DROP ... PURGE delete base files without it.
    "gc.enabled": "false",
    # A retry repeats a snapshot whose first answer was lost, and doubles its rows.
    "commit.retry.num-retries": "0",
    # Iceberg's vectorized reader of Parquet stops at the encodings by difference that base files have.
    "read.parquet.vectorization.enabled": "false",
    # Otherwise each commit costs more than the one before.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "100",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Properties of the Iceberg table on which the mirror rests; each run puts them back."""


class IcebergMirror(Telling):
    """The Iceberg table of one pipeline. Close it after use.

    Args:
        pipeline: the pipeline.
        settings: its `mirror.iceberg`.
        storage: the Hudi table's file system.
        catalog: pyiceberg's properties of the catalog, and its NAME.
    """

    def __init__(self, pipeline: Pipeline, settings: Settings, storage: Storage, catalog: Mapping[str, str]) -> None:
        super().__init__(pipeline.name, "iceberg", f"Iceberg table {settings.table}")
        self._pipeline, self._settings, self._storage = pipeline, settings, storage
        self._properties = dict(catalog)
        self._table: Table | None = None

    def close(self) -> None:
        """Closes the catalog's connections."""
        if "_catalog" in self.__dict__:
            self._catalog.close()

    @cached_property
    def _catalog(self) -> Catalog:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise self._refused(
                "pyiceberg is not installed here: pip install 'airflow-provider-slshudi[iceberg]'"
            ) from error
        with self._asked():
            name = self._properties.pop(NAME, "slshudi")
            return load_catalog(name, **{**_store_properties(self._storage.uri), **self._properties})

    def place(self) -> Place | None:
        """Loads the table; puts its properties back, and the newest snapshot of ours, if another client changed them.

        None if there is no table, or no snapshot of ours.
        """
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalog
        with self._asked():
            try:
                self._table = table = catalog.load_table(self._settings.table)
            except NoSuchTableError:
                self._table = None
                return None
            lacking = {key: value for key, value in PROPERTIES.items() if table.properties.get(key) != value}
            if lacking:
                table.transaction().set_properties(lacking).commit_transaction()
            ours = max(_with_place(table.metadata), key=lambda one: one.sequence_number or 0, default=None)
            if ours is None:
                return None
            if ours != table.current_snapshot():
                # Takes deletes and rewrites of another engine back at once; no method of pyiceberg drops delete files.
                table.manage_snapshots().set_current_snapshot(snapshot_id=ours.snapshot_id).commit()
            return _place(ours)

    def files(self) -> frozenset[str]:
        """The files of the newest snapshot."""
        with self._asked():
            return frozenset(path for file in self._named() if (path := self._path(file)) is not None)

    def apply(self, change: Change, columns: Columns, summary: Mapping[str, str]) -> None:
        """Adds a snapshot with one instant's change."""
        with self._asked():
            superseded = [file for file in self._named() if self._is_of(file, change)] if change.superseded else []
            self._write(self._loaded(), change.added, superseded, columns, summary)

    def reconcile(
        self, added: list[BaseFile], live: frozenset[str], columns: Columns, summary: Mapping[str, str]
    ) -> None:
        """Makes the table if there is none, and adds a snapshot that names `live` alone.

        Args:
            added: files that the newest snapshot does not name.
            live: paths within the table of all files.
            columns: the table's.
            summary: the snapshot's metadata.
        """
        with self._asked():
            if self._table is None:
                self._create(added, columns, summary)
                return
            if any(int(one.content) for one in self._manifests()):
                raise self._refused(
                    "another engine deleted rows in it, and no snapshot of ours is left: drop the table"
                )
            removed_files = [file for file in self._named() if self._path(file) not in live]
            self._write(self._table, added, removed_files, columns, summary)
            # A rollback or a restore may have deleted files that older snapshots name.
            self._expire(self._table, {one.snapshot_id for one in self._table.metadata.snapshots})

    def release(self, files: Iterable[str]) -> list[str]:
        """Expires the snapshots that name one of these files, so that a clean may delete them.

        Returns the names of tags and branches of others that keep such a snapshot nevertheless.
        """
        if self._table is None:
            return []
        with self._asked():
            leaving = {self._uri(path) for path in files}
            read: dict[str, bool] = {}
            named = [one for one in self._table.metadata.snapshots if self._names_any(one, leaving, read)]
            self._expire(self._table, {one.snapshot_id for one in named})
            snapshot_ids = {one.snapshot_id for one in self._table.metadata.snapshots}
            held = {one.snapshot_id for one in named} & snapshot_ids
            return [name for name, ref in self._table.metadata.refs.items() if ref.snapshot_id in held]

    def _create(self, added: list[BaseFile], columns: Columns, summary: Mapping[str, str]) -> None:
        settings, catalog = self._settings, self._catalog
        catalog.create_namespace_if_not_exists(settings.table.rpartition(".")[0])
        schema = schema_of(columns)
        location = settings.location or f"{self._pipeline.table.path}_iceberg"
        transaction = catalog.create_table_transaction(
            settings.table, schema, location, spec_of(columns, schema), properties=PROPERTIES
        )
        transaction.set_properties({_MAPPING: name_mapping(transaction.table_metadata.schema())})
        with transaction.update_snapshot(snapshot_properties=dict(summary)).fast_append() as snapshot:
            for file in added:
                snapshot.append_data_file(self._data_file(file, columns, transaction.table_metadata))
        self._table = transaction.commit_transaction()

    def _write(
        self,
        table: Table,
        added: Iterable[BaseFile],
        removed: list[DataFile],
        columns: Columns,
        summary: Mapping[str, str],
    ) -> None:
        change = table.transaction()
        self._evolve(change, columns)
        update = change.update_snapshot(snapshot_properties=dict(summary))
        with replacing(change, table.io, summary) if removed else update.merge_append() as snapshot:
            for file in added:
                snapshot.append_data_file(self._data_file(file, columns, change.table_metadata))
            for removed_file in removed:
                snapshot.delete_data_file(removed_file)
        change.commit_transaction()
        snapshots = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
        if len(snapshots) >= 2 * self._settings.keep:
            self._expire(table, {one.snapshot_id for one in snapshots[: -self._settings.keep]})

    def _evolve(self, change: Transaction, columns: Columns) -> None:
        """Adds columns, and makes types wider.

        Raises:
            MirrorRefused: Iceberg cannot make a type that wide, or the table has other partitions.
        """
        from pyiceberg.exceptions import ResolveError, ValidationError

        before = change.table_metadata.schema()
        try:
            with change.update_schema() as update:
                update.union_by_name(schema_of(columns))
        except (ResolveError, ValidationError, ValueError, TypeError) as error:
            raise self._refused(
                f"{' '.join(str(error).split())}. Iceberg cannot change a column like this: drop the table, and the "
                "next run makes it anew; or give the new type another column"
            ) from error
        after = change.table_metadata.schema()
        if after != before or _MAPPING not in change.table_metadata.properties:
            change.set_properties({_MAPPING: name_mapping(after)})
        if change.table_metadata.spec().fields != spec_of(columns, after).fields:
            raise self._refused("it has other partitions than the Hudi table: drop it, and the next run makes it anew")

    def _expire(self, table: Table, snapshot_ids: set[int]) -> None:
        """Expires snapshots that no tag or branch keeps, and deletes the metadata files that only they name."""
        from pyiceberg.table.maintenance import MaintenanceTable

        held = {ref.snapshot_id for ref in table.metadata.refs.values()}
        expired = [one for one in table.metadata.snapshots if one.snapshot_id in snapshot_ids - held]
        if not expired:
            return
        manifests = {one.manifest_path for snapshot in expired for one in snapshot.manifests(table.io)}
        MaintenanceTable(table).expire_snapshots().by_ids([one.snapshot_id for one in expired]).commit()
        # pyiceberg deletes none of them. A run that dies here leaves a few small files beside the mirror's.
        live_manifests = {
            one.manifest_path for snapshot in table.metadata.snapshots for one in snapshot.manifests(table.io)
        }
        for file in [*(one.manifest_list for one in expired), *(manifests - live_manifests)]:
            table.io.delete(file)

    def _names_any(self, snapshot: Snapshot, leaving: set[str], read: dict[str, bool]) -> bool:
        io = self._loaded().io
        for manifest in snapshot.manifests(io):
            path = manifest.manifest_path
            if path not in read:
                read[path] = any(one.data_file.file_path in leaving for one in manifest.fetch_manifest_entry(io))
            if read[path]:
                return True
        return False

    def _loaded(self) -> Table:
        if self._table is None:
            raise self._failed("it was not loaded")
        return self._table

    def _manifests(self) -> list[Any]:
        head = self._table.current_snapshot() if self._table is not None else None
        return [] if head is None or self._table is None else list(head.manifests(self._table.io))

    def _named(self) -> Iterator[DataFile]:
        """The data files that the newest snapshot names."""
        io = self._loaded().io if self._table is not None else None
        for manifest in self._manifests():
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(io))

    def _is_of(self, file: DataFile, change: Change) -> bool:
        path = self._path(file)
        return path is not None and group_of(path) in change.superseded

    def _uri(self, path: str) -> str:
        return f"{self._storage.uri}/{path}"

    def _path(self, file: DataFile) -> str | None:
        """A file's path within the Hudi table; None for a file that another engine wrote elsewhere."""
        path = file.file_path.removeprefix(f"{self._storage.uri}/")
        return None if path == file.file_path else path

    def _data_file(self, file: BaseFile, columns: Columns, metadata: TableMetadata) -> DataFile:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        values = []
        if columns.partition is not None:
            type_ = metadata.schema().find_type(columns.partition)
            values.append(partition_value(columns.partition_value(file.partition), type_))
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._uri(file.path),
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            record_count=file.rows,
            file_size_in_bytes=file.size,
        )
        data_file.spec_id = metadata.default_spec_id
        return data_file


def _place(snapshot: Snapshot) -> Place | None:
    return Place.parse(snapshot.summary.get(PLACE_KEY)) if snapshot.summary is not None else None


def _with_place(metadata: TableMetadata) -> list[Snapshot]:
    return [one for one in metadata.snapshots if _place(one) is not None]


def _store_properties(uri: str) -> dict[str, str]:
    """What pyiceberg is told of the object store, as this package's own client is; keys come from the environment."""
    if not objectstore.is_stored(uri):
        return {}
    options = objectstore.arrow_options(uri)
    properties = {
        "s3.endpoint": options["endpoint_override"],
        "s3.region": options.get("region"),
        "s3.force-virtual-addressing": options.get("force_virtual_addressing"),
    }
    return {name: str(value) for name, value in properties.items() if value is not None}
