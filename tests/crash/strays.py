"""Files below `.hoodie` that belong to no act any more, of a table that nothing is at work on."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.hudi.layout import FOLDER, LAYOUT_1, METADATA_FOLDER, PROPERTIES, Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.storage.files import Storage

_INSTANT = re.compile(r"\d+(_\d+)?(\.[a-z]+)?(\.requested|\.inflight)?")
_HISTORY = re.compile(r"manifest_\d+|_version_|\d+_\d+_\d+\.parquet|\.commits_\.archive\..+")
_OF_METADATA = re.compile(
    r"\.?[a-z]+-\d+-\d+_(?:[\d-]+_)?(?P<instant>\d+)\.(?:hfile|log\..+)|\.hoodie_partition_metadata"
)
# A file where the markers of a rewriting were that was rolled back: it keeps late tasks from beginning files.
_BARRED = re.compile(r"\.hoodie/\.temp/\d+")
_WORKED_ON = re.compile(rf"{ROOT}/\d+/.*")


def strays(table: Storage) -> list[str]:
    """Paths of such files: of half-written instants, of exchange folders, of markers, and checksums of no file."""
    found = sorted(table.files(".hoodie"))
    metadata = Storage(f"{table.uri}/{METADATA_FOLDER}")
    there = set(found)
    known = {instant.time for instant in Timeline.load(metadata) if instant.phase is Phase.COMPLETED}
    oldest = min(known, default="")
    return [path for path in found if not _belongs(path, there, known, oldest)]


def _belongs(path: str, there: set[str], known: set[str], oldest: str) -> bool:
    folder, name = str(PurePosixPath(path).parent), PurePosixPath(path).name
    if name.startswith(".") and name.endswith(".crc"):
        return f"{folder}/{name[1:-4]}" in there
    within = path.removeprefix(f"{METADATA_FOLDER}/")
    if within == PROPERTIES:
        return True
    if within.startswith((f"{FOLDER}/history/", f"{LAYOUT_1.archive}/")):
        return bool(_HISTORY.fullmatch(name))
    if within.startswith(f"{FOLDER}/") or str(PurePosixPath(within).parent) == LAYOUT_1.folder:
        return bool(_INSTANT.fullmatch(name))
    if within != path:
        match = _OF_METADATA.fullmatch(name)
        return match is not None and (
            match["instant"] is None or match["instant"] in known or match["instant"] < oldest
        )
    return bool(_BARRED.fullmatch(path)) or (
        path.startswith(f"{ROOT}/") and not _WORKED_ON.fullmatch(path) and not path.endswith(".tmp")
    )
