"""Takes away completions that a full disk or a power loss cut off, so that the act which each tells of is redone.

The caller holds the pipeline's lease: every completion of ours is written under it, and its driver has ended. A cut
completion says nothing that is true yet: its act left its files and its plan, which go only once it is completed.
"""

from __future__ import annotations

import logging

from airflow_provider_slshudi.exceptions import TableMismatch, TimelineUnreadable
from airflow_provider_slshudi.hudi import leftovers, properties
from airflow_provider_slshudi.hudi.instant_metadata import COMPACTION, OWNER
from airflow_provider_slshudi.hudi.layout import CLUSTERING, FOLDER, METADATA_FOLDER, PROPERTIES, Instant, Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import State
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.tables import TransactionTables

_log = logging.getLogger(__name__)
# Hudi carries a pending one out again, however far it had come.
_REPEATED = ("clean", "rollback")
_OF_METADATA = (*_REPEATED, "compaction", "logcompaction")
"""What Hudi plans for a metadata table by itself, and whose plans it reads before it does anything else."""


def has_cut(work: Work) -> bool:
    """Whether a completion, or a service's plan, looks cut off, or a file has no name yet.

    Without the lease a process may be writing it.
    """
    prepared = _prepared(work)
    for storage in _renaming(work):
        metadata = _metadata_timeline(storage)
        looks = ((Timeline.load(storage), _REPEATED), (metadata, _OF_METADATA))
        if _damaged_in_metadata(storage, metadata) or any(
            timeline.cut_completions(prepared) or timeline.cut_plans(*services) or timeline.unnamed
            for timeline, services in looks
        ):
            return True
    return False


def take_away(work: Work) -> bool:
    """Removes what was cut off of the transaction's tables and their metadata tables: completions, plans of
    services, and files of a timeline that did not get their name. Returns whether it looked: not in an object store.

    Raises:
        TableMismatch: a cut completion cannot be redone; the message names the file.
    """
    prepared, storages = _prepared(work), _renaming(work)
    for storage in storages:
        timeline = Timeline.load(storage)
        for instant in timeline.cut_completions(prepared):
            if instant.time not in prepared and not _is_redone(work, storage, timeline, instant):
                raise _damage(storage, instant, "put it back from the storage's versions or from a backup of the table")
            _remove(storage, timeline, instant)
        for planned in timeline.cut_plans(*_REPEATED):
            # What a rollback was to take away is given up all the same: its order went first, and durably.
            _remove(storage, timeline, planned)
        timeline.remove_unnamed()
        _take_away_of_metadata(storage, f"run `slshudi table rebuild-metadata {work.pipeline.name}`")
    return bool(storages)


def _take_away_of_metadata(storage: Storage, otherwise: str) -> None:
    """Removes a metadata table's newest completion if it is cut and the table has not completed the act it tells of.

    Where the table has completed it, nothing would tell the metadata table of its files again: then the error asks for
    what is to be done `otherwise`.
    """
    timeline, metadata = _metadata_timeline(storage), _metadata(storage)
    if damaged := _damaged_in_metadata(storage, timeline):
        raise TableMismatch(
            f"{storage.uri}: {METADATA_FOLDER}/{damaged} is cut off or gone, by a loss of power or with its driver's "
            f"death: {otherwise}",
            table=storage.uri,
        )
    # As it is now: what was cut off of it was taken away.
    main = Timeline.load(storage)
    completed = [instant for instant in timeline if instant.phase is Phase.COMPLETED]
    for instant in timeline.cut_completions():
        is_newest = all(str(other.completion) <= str(instant.completion) for other in completed)
        if not is_newest or _is_completed(main, instant.time):
            raise _damage(storage, instant, otherwise, f"{METADATA_FOLDER}/")
        _remove(metadata, timeline, instant)
    for service in timeline.cut_plans(*_OF_METADATA):
        if service.action not in _REPEATED:
            # Later entries would go with a base file that no timeline knows, and no reader would see them.
            metadata.delete_files([path for path, _ in metadata.walk() if _written_by(path) == service.time])
        _remove(metadata, timeline, service)
    timeline.remove_unnamed()


def _damaged_in_metadata(storage: Storage, timeline: Timeline) -> str:
    """A file without which no metadata table can be read: its properties, or a base file of its newest compaction.

    Hudi writes both anew within acts of its own, so a loss of power may cut one off and leave what tells of it whole.
    `timeline` is the metadata table's. Empty where there is none.
    """
    metadata = _metadata(storage)
    if (any(timeline) or metadata.exists(FOLDER)) and not properties.tells_name(metadata):
        return PROPERTIES
    newest = [instant for instant in timeline.completed("commit")[-1:] if timeline.is_whole(instant)]
    stats = [
        stat
        for one in newest
        for partition_stats in timeline.record(one)["partitionToWriteStats"].values()
        for stat in partition_stats
    ]
    # Hudi deletes the folder of an index that is turned off.
    partitions = set(metadata.folders("")) if stats else set()
    sizes = {str(stat["path"]): int(stat["fileSizeInBytes"]) for stat in stats if stat["partitionPath"] in partitions}
    actual_sizes = {path: metadata.size(path) for path in metadata.existing(list(sizes))} if sizes else {}
    return next((path for path, size in sizes.items() if actual_sizes.get(path) != size), "")


def _written_by(path: str) -> str | None:
    """The instant that wrote a file, or the file whose checksum Hadoop keeps there."""
    name = path.rpartition("/")[2]
    return leftovers.instant_of(name.removeprefix(".").removesuffix(".crc") if name.endswith(".crc") else name)


def _is_completed(main: Timeline, time: str) -> bool:
    return any(one.time == time and one.phase is Phase.COMPLETED for one in main) or main.archived(time) is not None


def _is_redone(work: Work, storage: Storage, timeline: Timeline, instant: Instant) -> bool:
    """Whether the act is one of a table service that is carried out again once it is pending."""
    if instant.action in _REPEATED:
        return True
    if any(str(clean.completion) > str(instant.completion) for clean in timeline.completed("clean")):
        # It may have deleted the files that the act read.
        return False
    for service in (CLUSTERING, COMPACTION):
        planned = Instant(instant.time, service, Phase.INFLIGHT)
        if timeline.has_plan(planned):
            plan = timeline.plan(planned)
            return (plan.get("extraMetadata") or {}).get(OWNER) == work.pipeline.name
    return False


def _prepared(work: Work) -> set[str]:
    live = work.ledger.live(work.pipeline.name)
    return {str(one.instant) for one in live if one.state is State.PREPARED and one.instant is not None}


def _renaming(work: Work) -> list[Storage]:
    """The storages of the transaction's tables; in an object store each file is whole or not there."""
    return [storage for storage in TransactionTables.of(work).storages() if storage.renames]


def _metadata(storage: Storage) -> Storage:
    return Storage(f"{storage.uri}/{METADATA_FOLDER}")


def _metadata_timeline(storage: Storage) -> Timeline:
    """The metadata table's timeline; empty where there is none that can be read, since Hudi makes that table anew."""
    metadata = _metadata(storage)
    try:
        return Timeline.load(metadata)
    except TimelineUnreadable as error:
        _log.warning("%s: its metadata table is not looked at for what was cut off: %s", storage.uri, error)
        return Timeline(metadata, {})


def _remove(storage: Storage, timeline: Timeline, instant: Instant) -> None:
    _log.warning("%s: cut off, so taken away and redone: %s", storage.uri, ", ".join(timeline.remove(instant)))


def _damage(storage: Storage, instant: Instant, act: str, folder: str = "") -> TableMismatch:
    return TableMismatch(
        f"{storage.uri}: {folder}{instant.file} is cut off, and a batch or reader may rely on it already: {act}",
        table=storage.uri,
        instant=instant.time,
    )
