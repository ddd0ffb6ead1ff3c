"""The file groups of a table with a bucket index, as a folder's names show them (hudi.apache.org/docs/file_layouts)."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import TableMismatch
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage

# Hudi's bulk insert leaves the `-0` behind the UUID out.
_BASE_FILE = re.compile(r"(?P<id>\d{8}-[^_]+)_[^_]+_(?P<instant>\d+)\.parquet")
_LOG_FILE = re.compile(r"\.(?P<id>\d{8}-[^_]+)_(?P<instant>\d+)\.log\.\d+(_[\d-]+)?")


@dataclass(frozen=True)
class Completed:
    """The instants whose files count: completed ones, and all before the active timeline."""

    instants: frozenset[str]
    oldest: str

    @classmethod
    def of(cls, timeline: Timeline) -> Completed:
        """The completed instants of a timeline."""
        done = [instant.time for instant in timeline if instant.phase is Phase.COMPLETED]
        return cls(frozenset(done), min((instant.time for instant in timeline), default=""))

    def __contains__(self, instant: object) -> bool:
        return instant in self.instants or str(instant) < self.oldest


@dataclass(frozen=True)
class FileGroup:
    """A bucket's file group: its id, its newest base file and that file's instant (both None without a base file)."""

    file_id: str
    base_file: str | None
    instant: str | None


def file_groups(storage: Storage, partition: str, completed: Completed) -> dict[int, FileGroup]:
    """Bucket -> file group, for the buckets of a partition that have one; one listing.

    Raises:
        TableMismatch: a bucket has two file groups, so another writer did not keep to the index.
    """
    groups: dict[int, FileGroup] = {}
    for name in storage.names(partition) or []:
        base = _BASE_FILE.fullmatch(name)
        match = base or _LOG_FILE.fullmatch(name)
        if match is None or match["instant"] not in completed:
            continue
        group = groups.setdefault(bucket_of(match["id"]), FileGroup(match["id"], None, None))
        if group.file_id != match["id"]:
            raise TableMismatch(
                f"{storage.uri}: bucket {bucket_of(match['id'])} of a partition has two file groups, "
                f"{group.file_id} and {match['id']}: another writer did not keep to the bucket index. Rewrite the "
                "partition with Hudi's data source and the same hoodie.bucket.index options",
                table=storage.uri,
            )
        if base and match["instant"] > (group.instant or ""):
            groups[bucket_of(match["id"])] = FileGroup(match["id"], name, match["instant"])
    return groups


def new_file_id(bucket: int) -> str:
    """A new file group's id: its bucket in the place of the UUID's first eight digits."""
    return f"{bucket:08d}{str(uuid.uuid4())[8:]}-0"


def bucket_of(file_id: str) -> int:
    """The bucket of a file group."""
    return int(file_id[:8])
