"""The metadata table (hudi.apache.org/docs/metadata, read in 1.2.0): compared with what is on storage, and made anew.

Readers that use it see the files that it lists and no others, so a file that it lacks is rows that nobody reads.
Nothing here decides anything: callers hold the pipeline's lease and have read the timeline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

from airflow_provider_slshudi.config import Pipeline
from airflow_provider_slshudi.hudi.commit import client
from airflow_provider_slshudi.hudi.gateway import Gateway, hadoop_path
from airflow_provider_slshudi.hudi.storage import Storage
from airflow_provider_slshudi.hudi.timeline import Phase, Timeline

FOLDER = ".hoodie/metadata"
_EXAMPLES = 5
# A base file, and a log file of a file group: the time of the instant that wrote it.
_FILE = re.compile(r"[^.].*_(?P<base>\d+)\.[a-z]+|\.[^_]+_(?P<log>\d+)\.log\.\d+_.*")


@dataclass(frozen=True)
class Comparison:
    """How the metadata table differs from what is on storage; of each kind a number, and of all a few paths.

    Attributes:
        files: that completed instants left on storage.
        lacking: of these, those that the metadata table lacks: their rows are not read.
        gone: that it lists and that are not there: queries fail.
        differing: whose length it has wrong.
        unreadable: why it cannot be read at all; it is empty where there is none, which is no damage.
    """

    files: int
    lacking: int = 0
    gone: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def ok(self) -> bool:
        """Whether readers with it and readers without it see the same files."""
        return not (self.lacking or self.gone or self.differing or self.unreadable)


def compare(gateway: Gateway, pipeline: Pipeline, storage: Storage) -> Comparison:
    """Compares it with a listing of the table, which takes as long as the table has files."""
    timeline = Timeline.load(storage)
    there = dict(storage.walk())
    listed = [path for path in there if _is_committed(path, timeline)]
    try:
        known = _known(gateway, pipeline, storage)
    except Exception as error:  # whatever Hudi makes of files that are damaged
        return Comparison(len(listed), unreadable=" ".join(f"{type(error).__name__}: {error}".split())[:500])
    if known is None:
        return Comparison(len(listed))
    # What a clean that is not completed deleted is still listed.
    cleaned = timeline.pending_clean()
    leaving = set(timeline.clean_plan(cleaned).files) if cleaned else set()
    lacking = sorted(path for path in listed if path not in known and path not in leaving)
    gone = sorted(path for path in known if path not in there and path not in leaving)
    differing = sorted(path for path, size in known.items() if there.get(path, size) != size)
    examples = (*lacking[:_EXAMPLES], *gone[:_EXAMPLES], *differing[:_EXAMPLES])
    return Comparison(len(listed), len(lacking), len(gone), len(differing), examples)


def rebuild(gateway: Gateway, pipeline: Pipeline, deleted: Callable[[], None]) -> None:
    """Deletes it and has Hudi make it anew from a listing; `deleted` is called in between.

    Files of pending instants are left out; their commits add them. Where it is cut off, readers list the table, and
    the next commit makes it anew.
    """
    with client(gateway, pipeline) as writer:
        config, engine = writer.getConfig(), writer.getEngineContext()
        meta = gateway.meta_client(hadoop_path(pipeline.table.path))
        gateway.hudi.metadata.HoodieTableMetadataUtil.deleteMetadataTable(meta, engine, False)
        deleted()
        gateway.hudi.metadata.SparkHoodieBackedTableMetadataWriter.create(gateway.storage_conf, config, engine).close()


def leave(storage: Storage, id_: str, found: Comparison) -> None:
    """Leaves what a comparison found."""
    storage.write(_path(id_), json.dumps(asdict(found)).encode())


def take(storage: Storage, id_: str) -> Comparison | None:
    """What a comparison found, None where it left nothing."""
    content = storage.read(_path(id_))
    if content is None:
        return None
    storage.delete(_path(id_))
    found = json.loads(content)
    return Comparison(**{**found, "examples": tuple(found["examples"])})


def _path(id_: str) -> str:
    return f".hoodie/slshudi/metadata/{id_}.json"


def _is_committed(path: str, timeline: Timeline) -> bool:
    """Whether a path is a file of a completed instant, maybe an archived one.

    What is younger than the timeline's oldest instant and not on it was rolled back.
    """
    match = _FILE.fullmatch(path.rpartition("/")[2])
    if match is None:
        return False
    time = match["base"] or match["log"]
    found = timeline.get(time)
    return time < timeline.oldest if found is None else found.phase is Phase.COMPLETED


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
