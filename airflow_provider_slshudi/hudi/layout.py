"""How a table's timeline is laid out, by Hudi's version of the table (hudi.apache.org/docs/timeline, read in 1.2.0).

Layout 2, of versions 8 and 9, has a folder of its own, and completion times in the names of its files. Layout 1, of
version 6, shares `.hoodie` with other files and knows no completion times. Its readers go by the order of requests, so
the request time is taken for the completion time there.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_provider_slshudi.exceptions import TimelineUnreadable

PROPERTIES = ".hoodie/hoodie.properties"
"""The file that every table has."""
METADATA_FOLDER = ".hoodie/metadata"
"""The folder of a table's metadata table, which is a table with a timeline of its own."""
FOLDER = ".hoodie/timeline"
"""The folder of a timeline of layout 2."""
HISTORY = f"{FOLDER}/history"
"""The folder of its archive."""
MOVING = f"{FOLDER}/slshudi.moving"
"""Is there while a timeline moves into or out of this folder, see `hudi.moving`. Each look lists this folder first."""
CLUSTERING = "clustering"
REPLACE = "replacecommit"
# A savepoint has the time of the commit that it keeps, but is no commit.
_PENDING = re.compile(r"(?P<time>\d+)(?:\.(?P<action>(?!savepoint)[a-z]+))?\.(?P<state>requested|inflight)")
_COMPLETED = re.compile(r"(?P<time>\d+)_(?P<completion>\d+)\.(?P<action>(?!savepoint)[a-z]+)")
_FORMER_COMPLETED = re.compile(r"(?P<completion>(?P<time>\d+))\.(?P<action>(?!savepoint|requested|inflight)[a-z]+)")
# Hudi writes a file under such a name first, and Hadoop keeps a checksum beside it.
UNNAMED = re.compile(r".+\.[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}(\.crc)?")


class Phase(Enum):
    """How far an instant is."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on a timeline.

    Attributes:
        time: when it was requested, as Hudi writes times.
        action: Hudi's name of it.
        phase: how far it is.
        completion: its completion time, None while it is pending.
        file: the path within the table of the file that completed it, empty while it is pending.
    """

    time: str
    action: str
    phase: Phase
    completion: str | None = None
    file: str = ""


@dataclass(frozen=True)
class Layout:
    """The names of a timeline's files.

    Attributes:
        folder: the timeline's folder within the table.
        archive: the folder of archived instants.
    """

    folder: str
    archive: str
    _completed: re.Pattern[str]
    _names: Mapping[str, str] = field(default_factory=dict)

    def instant(self, name: str) -> Instant | None:
        """The instant that a file of the folder tells of; None for any other file."""
        if match := self._completed.fullmatch(name):
            file = f"{self.folder}/{name}"
            return Instant(match["time"], match["action"], Phase.COMPLETED, match["completion"], file)
        if match := _PENDING.fullmatch(name):
            # A commit's inflight file names no action.
            return Instant(match["time"], match["action"] or "commit", Phase(match["state"]))
        return None

    def pending_file(self, instant: Instant, phase: Phase) -> str:
        """The path within the table of the file that says a service or rollback is REQUESTED, or INFLIGHT."""
        return f"{self.folder}/{instant.time}.{self._names.get(instant.action, instant.action)}.{phase.value}"

    def is_unnamed(self, name: str) -> bool:
        """Whether an instant's file did not get its name: a disk was full, its writer died, or is at it."""
        return name.lstrip(".")[:1].isdigit() and UNNAMED.fullmatch(name) is not None


LAYOUT_2 = Layout(FOLDER, HISTORY, _COMPLETED)
LAYOUT_1 = Layout(".hoodie", ".hoodie/archived", _FORMER_COMPLETED, {CLUSTERING: REPLACE})


def record_of(content: bytes) -> dict[str, Any]:
    """The record in a file of a timeline: Avro, or JSON where a write of layout 1 was completed.

    Reads to the end, where the marker of a block that was cut off is missing.

    Raises:
        TimelineUnreadable: the content is no whole record.
    """
    import fastavro

    try:
        if content.startswith(b"{"):
            record = json.loads(content)
        else:
            record, *_ = fastavro.reader(io.BytesIO(content))
    except Exception as error:  # what is cut off makes fastavro raise all sorts of errors
        raise TimelineUnreadable(f"no whole Avro or JSON ({error!r})", table="") from error
    return record if isinstance(record, dict) else {}


def is_whole(content: bytes) -> bool:
    """Whether the content is a record and has its end."""
    try:
        record_of(content)
    except TimelineUnreadable:
        return False
    return True
