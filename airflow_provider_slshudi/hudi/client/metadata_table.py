"""Hudi's metadata table by Hudi's client: compared with storage, made anew, its indexes mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.config.table import FORMER_VERSION
from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.handover.findings import EXAMPLES, Comparison, Findings
from airflow_provider_slshudi.hudi import evolution, leftovers, properties, statistics
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.client.writer import WRITE_VERSION, client
from airflow_provider_slshudi.hudi.files.slices import Slice
from airflow_provider_slshudi.hudi.layout import METADATA_FOLDER, Phase
from airflow_provider_slshudi.hudi.schema import avro_schema
from airflow_provider_slshudi.hudi.statistics import Indexes
from airflow_provider_slshudi.hudi.timeline import CHANGES, Timeline
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.storage.objectstore import hadoop_path


def committed_files(gateway: Gateway, table: Pipeline) -> list[Slice]:
    """The table's newest committed base files."""
    timeline = Timeline.load(Storage(table.table.path))
    active = {instant.time for instant in timeline.completed(*CHANGES)}
    archived = cache(timeline.archived_changes)
    return _newest(gateway, table, lambda instant: instant in active or instant in archived())


def _newest(gateway: Gateway, table: Pipeline, is_completed: Callable[[str], bool]) -> list[Slice]:
    """The table's newest committed base files, by Hudi's own view of the file system.

    `is_completed` has the last word: Hudi's view takes every instant older than all completed ones for completed.
    """
    meta = gateway.meta_client(hadoop_path(table.table.path))
    engine = gateway.hudi.common.engine.HoodieLocalEngineContext(gateway.storage_conf)
    completed = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
    view = gateway.hudi.common.table.view.HoodieTableFileSystemView.fileListingBasedFileSystemView(
        engine, meta, completed
    )
    try:
        view.loadAllPartitions()
        storage = Storage(table.table.path)
        slices = []
        for file in view.getLatestBaseFiles().toArray():
            name = storage.relative(str(file.getPath()))
            slices.append(Slice(name, str(file.getFileId()), str(file.getCommitTime()), name.rpartition("/")[0]))
    finally:
        view.close()
    return sorted((file for file in slices if is_completed(file.instant)), key=lambda file: file.name)


def compare(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> Comparison:
    """Compares it with a listing of the table, which takes longer the more files the table has."""
    timeline = Timeline.load(storage)
    sizes = dict(storage.walk())
    files = _sorted_out(timeline, sizes)
    listed = files.committed
    if cut := _cut_completions(storage):
        return files.compared(unreadable=f"cut off: {', '.join(cut[:EXAMPLES])}")
    try:
        metadata_sizes = _known(gateway, pipeline, storage)
    except Exception as error:  # damaged files make Hudi raise all sorts of errors
        why = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        return files.compared(unreadable=why)
    if metadata_sizes is None:
        return files.compared()
    # It still lists the files that a pending clean has deleted.
    cleaned = timeline.pending_clean()
    leaving = set(timeline.clean_plan(cleaned).files) if cleaned else set()
    lacking = sorted(path for path in listed if path not in metadata_sizes and path not in leaving)
    missing_paths = sorted(path for path in metadata_sizes if path not in sizes and path not in leaving)
    differing = sorted(path for path, size in metadata_sizes.items() if sizes.get(path, size) != size)
    return files.compared(lacking, missing_paths, differing)


def rebuild(
    gateway: Gateway,
    pipeline: Pipeline,
    deleted: Callable[[], None],
    more: Iterable[str] = (),
    less: Iterable[str] = (),
) -> None:
    """Deletes it and has Hudi make it anew from a listing; `deleted` is called in between.

    The new one has bounds of the same columns and of `more`, but not of `less`, as far as the pipeline's file wants
    them, and no foreign index. It lists no files of pending instants; their commits add them. If this is cut off,
    readers list the table, and the next commit makes the metadata table anew.

    Args:
        gateway: of a driver with a SparkContext.
        pipeline: its table's metadata table is made anew.
        deleted: is called once the old one is gone.
        more: columns that get bounds.
        less: columns that lose theirs.
    """
    base = hadoop_path(pipeline.table.path)
    indexes = Indexes.of(Storage(pipeline.table.path))
    bounded = {*indexes.bounded, *more} - {*less}
    with client(gateway, pipeline, bounded=bounded) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        utils = gateway.hudi.metadata.HoodieTableMetadataUtil
        utils.deleteMetadataTable(gateway.meta_client(base), engine, False)
        deleted()
        # Definitions go after their indexes: if this is cut off in between, the next rebuild still sees them.
        meta = gateway.meta_client(base)
        for name in indexes.foreign:
            if meta.getIndexForMetadataPartition(name).isPresent():
                meta.deleteIndexDefinition(name)
        gateway.hudi.metadata.SparkHoodieBackedTableMetadataWriter.create(gateway.storage_conf, config, engine).close()


def require_none_later(writer: Any, storage: Storage, instant: str) -> None:
    """Lets no instant of a table of version 6 end that the metadata table has compacted past; `writer` is its client.

    Readers of that version take a log file for a part of the newest compaction requested before it, so they would miss
    the instant's files; Hudi refuses to roll such an instant back. Hudi 1.2.0 compacts past instants that are pending.

    Raises:
        TableMismatch: another client compacted the metadata table since the instant was opened.
    """
    if str(writer.getConfig().getString(WRITE_VERSION)) != str(FORMER_VERSION):
        return
    metadata = Timeline.load(Storage(f"{storage.uri}/{METADATA_FOLDER}"))
    later = [one.time for one in metadata.completed("commit") if one.time > instant]
    if later:
        raise TableMismatch(
            f"{storage.uri}: another client compacted the metadata table at {later[0]}, while instant {instant} was "
            "pending, and readers of table version 6 would miss what comes before that: run `slshudi table "
            "rebuild-metadata`, and the next run goes on",
            table=storage.uri,
            instant=instant,
        )


def sweep(storage: Storage) -> list[str]:
    """Lists the table and deletes the files of instants that were rolled back; returns them."""
    undone_paths = _sorted_out(Timeline.load(storage), [path for path, _ in storage.walk()]).leftovers
    storage.delete_files(undone_paths)
    return undone_paths


@dataclass(frozen=True)
class _Files:
    """A table's files by what became of the instants that wrote them, without those of pending instants."""

    committed: list[str]
    leftovers: list[str]
    unknown: list[str]

    def compared(
        self, lacking: Sequence[str] = (), gone: Sequence[str] = (), differing: Sequence[str] = (), unreadable: str = ""
    ) -> Comparison:
        kinds = (lacking, gone, differing, self.leftovers, self.unknown)
        examples = tuple(path for kind in kinds for path in kind[:EXAMPLES])
        counts = len(self.committed), len(lacking), len(gone), len(differing)
        return Comparison(*counts, examples, unreadable, len(self.leftovers), len(self.unknown))


def _sorted_out(timeline: Timeline, paths: Iterable[str]) -> _Files:
    """Tells committed files, leftovers of rollbacks and unknown files apart.

    An instant that is not on the timeline was committed if the archive has it, and undone if a rollback names it. One
    that is neither may have been opened since the timeline was read; if it is older than the timeline, it is unknown.
    """
    by_instant: dict[str, list[str]] = {}
    for path in paths:
        if (time := leftovers.instant_of(path)) is not None:
            by_instant.setdefault(time, []).append(path)
    away = {time for time in by_instant if timeline.get(time) is None}
    archived = timeline.archived_changes() if away else set()
    undone = timeline.rolled_back() if away - archived else set()
    files = _Files([], [], [])
    for time, instant_paths in sorted(by_instant.items()):
        instant = timeline.get(time)
        if time in archived or (instant is not None and instant.phase is Phase.COMPLETED):
            files.committed.extend(instant_paths)
        elif instant is None and time in undone and time not in timeline.rolling_back:
            files.leftovers.extend(instant_paths)
        elif instant is None and time < timeline.oldest:
            files.unknown.extend(instant_paths)
    return files


def _cut_completions(storage: Storage) -> list[str]:
    """Completions on the metadata table's timeline that cannot be read; each later commit would stop at them."""
    metadata = Storage(f"{storage.uri}/{METADATA_FOLDER}")
    timeline = Timeline.load(metadata)
    completed = [instant for instant in timeline if instant.phase is Phase.COMPLETED]
    return [f"{METADATA_FOLDER}/{one.file}" for one in completed if not timeline.is_whole(one)]


def _known(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> dict[str, int] | None:
    """Path and size of each file that the metadata table lists; None where there is no such table."""
    base = hadoop_path(pipeline.table.path)
    meta = gateway.meta_client(base)
    if not meta.getTableConfig().isMetadataTableAvailable():
        return None
    with client(gateway, pipeline) as writer:
        engine, config = writer.getEngineContext(), writer.getConfig().getMetadataConfig()
        reader = gateway.hudi.metadata.HoodieBackedTableMetadata(engine, meta.getStorage(), config, base)
        try:
            folders = gateway.jvm.java.util.ArrayList()
            for partition in reader.getAllPartitionPaths():
                folders.add(f"{base}/{partition}" if partition else base)
            return {
                storage.relative(str(file.getPath().toString())): int(file.getLength())
                for files in reader.getAllFilesInPartitions(folders).values()
                for file in files
            }
        finally:
            reader.close()


ESCAPED = "hoodie.datasource.write.partitionpath.urlencode"
_AT_A_TIME = 16


def look(gateway: Gateway, pipeline: Pipeline) -> Findings:
    """Reads the table's properties, its indexes and each base file's footer."""
    storage = Storage(pipeline.table.path)
    timeline = Timeline.load(storage)
    schema = evolution.schema_to_commit(storage, timeline) or avro_schema(pipeline)
    indexes = statistics.Indexes.of(storage)
    columns_to_bound = statistics.wanted(pipeline, schema) if indexes.are_told else []
    files = committed_files(gateway, pipeline)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        columns = list(pool.map(lambda file: _columns(storage, file.name), files))
    in_all = set.intersection(*columns) if columns else set(indexes.bounded)
    said = (properties.read(storage) or {}).get(ESCAPED)
    return Findings(
        foreign=tuple(indexes.foreign),
        hiding=tuple(name for name in indexes.bounded if name not in columns_to_bound or name not in in_all),
        lacking=tuple(name for name in columns_to_bound if name not in indexes.bounded and name in in_all),
        escaped=pipeline.table.partition is not None and said == "true" and not pipeline.escapes_folders,
        looked=len(files),
    )


def _columns(storage: Storage, name: str) -> set[str]:
    import pyarrow.parquet as pq

    return set(pq.read_schema(storage.full(name), filesystem=storage.filesystem).names)
