"""The clock of a table's timelines: UTC, and later than every time on them (read in Hudi 1.2.0).

A log file belongs to the newest base file that was requested before the log file was completed. Of two base files the
one of the newer instant counts (hudi.apache.org/docs/timeline). The same holds in the metadata table. So readers may
never see rows that are committed at an earlier time than one on the timeline. Hudi takes the machine's clock in the
JVM's zone, also where the table's property names another, and compares it with no timeline.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import reduce
from typing import Any

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.exceptions import ClockBehind, TimelineUnreadable
from airflow_provider_slshudi.hudi import properties
from airflow_provider_slshudi.hudi.beside import is_known, places, tables_beside
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.layout import LAYOUT_1, LAYOUT_2, METADATA_FOLDER
from airflow_provider_slshudi.hudi.timeline import is_metadata_table
from airflow_provider_slshudi.storage.files import Storage

WAIT_SECONDS = 10.0
"""The clocks of machines differ by up to this; a clock that is further behind was set wrong."""
# No place on earth is further ahead of UTC.
_FURTHEST_SECONDS = 14 * 3600
_TIMES = re.compile(r"(\d{14,})(?:_(\d{14,}))?\.")
_DIGITS = "%Y%m%d%H%M%S%f"
_ZONE = "hoodie.table.timeline.timezone"
_GENERATOR = "org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator"
# The generator's initial value.
_NEVER = "0"


@dataclass(frozen=True, order=True)
class Newest:
    """The newest time on some timelines, as Hudi writes times, and the table that has it."""

    time: str
    table: str

    @property
    def at(self) -> datetime:
        """The time, as one of UTC.

        Raises:
            TimelineUnreadable: its digits are no time.
        """
        try:
            return datetime.strptime(self.time, _DIGITS).replace(tzinfo=timezone.utc)
        except ValueError as error:
            raise TimelineUnreadable(
                f"{self.table}: its timeline has {self.time}, which is no time: {error}",
                table=self.table,
                instant=self.time,
            ) from error


def tables_of(pipeline: Pipeline, but_for: str = "") -> list[Storage]:
    """The tables that share a clock, existing or not: the main one and those beside, each with its metadata table.

    One beside that was never made is left out. `but_for` leaves out one, by its path below the pipeline's table.
    That may be the quarantine, see `quarantine.table_of`.
    """
    beside = [table for table in tables_beside(pipeline) if is_known(table, places(table))]
    tables = [Storage(pipeline.table.path), *(table.storage for table in beside)]
    names = [f"{storage.uri}/{within}".rstrip("/") for storage in tables for within in ("", METADATA_FOLDER)]
    left_out = f"{pipeline.table.path.rstrip('/')}/{but_for}" if but_for else None
    return [Storage(name) for name in names if name != left_out]


@contextmanager
def rising(gateway: Gateway, tables: Sequence[Storage]) -> Iterator[bool]:
    """In the block Hudi makes times in UTC that are later than every time on the timelines of `tables`.

    Waits if the clock is a little behind. A table that was written in a zone east of UTC has times in the future. While
    one of `tables` may be such by its properties, this puts Hudi's clock forward by just as much as needed, so that UTC
    overtakes it within hours. Yields whether Hudi's clock is UTC.

    Raises:
        ClockBehind: the machine's clock is behind the timelines; nothing was written.
        TimelineUnreadable: the storage did not answer.
    """
    newest = _newest(tables)
    ahead = 0 if newest is None else _ahead(gateway, newest, tables)
    zones, last = gateway.jvm.java.util.TimeZone, _last(gateway)
    before = zones.getDefault()
    # Hudi's own setting of UTC does not reach all of it: cleaning by hours, for one, still goes by the JVM's zone.
    zones.setDefault(_zone(gateway, ahead))
    _generator(gateway).setCommitTimeZone(gateway.hudi.common.model.HoodieTimelineTimeZone.LOCAL)
    # Hudi waits until its clock is past this time, so the time of a table that the process served before must not stay.
    last.set(newest.time if newest is not None else _NEVER)
    try:
        yield ahead == 0
    finally:
        last.set(_NEVER)
        zones.setDefault(before)


def zone_of_new(gateway: Gateway) -> Any:
    """The timeline zone of a table made now: UTC, or LOCAL while `rising` has put the JVM's clock forward."""
    zones = gateway.hudi.common.model.HoodieTimelineTimeZone
    offset = gateway.jvm.java.util.TimeZone.getDefault().getOffset(gateway.jvm.System.currentTimeMillis())
    return zones.LOCAL if offset else zones.UTC


def to_utc(tables: Sequence[Storage]) -> None:
    """Sets the timeline zone of tables to UTC; the caller holds the lease, and their newest times are past.

    Without that setting, times count as of the reader's zone, which matters to queries by date. Hudi would delete the
    properties file before it writes the change.
    """
    for table in tables:
        if _may_be_east(table):
            properties.put(table, _ZONE, "UTC")


def ahead_of_metadata(gateway: Gateway, table: Storage) -> str:
    """The newest time on the timeline of a table's metadata table, if this machine would have to wait for it."""
    newest = _newest([Storage(f"{table.uri}/{METADATA_FOLDER}")])
    waits = newest is not None and not _may_be_east(table) and _behind(gateway, newest) > WAIT_SECONDS
    return newest.time if newest is not None and waits else ""


def _newest(tables: Sequence[Storage]) -> Newest | None:
    """The newest request or completion time; one listing per timeline."""
    times = (
        Newest(digits[:17].ljust(17, "9"), table.uri)
        for table, names in _listed(tables)
        for name in names
        if (match := _TIMES.match(name)) is not None
        for digits in match.groups()
        # The metadata table's first requests have times that count from nought.
        if digits and not digits.startswith("0")
    )
    return max(times, default=None)


def _listed(tables: Sequence[Storage]) -> Iterator[tuple[Storage, list[str]]]:
    """The tables with `_names`; without those of metadata tables where the table itself has none."""
    absent: set[str] = set()
    for table in tables:
        if table.uri.removesuffix(f"/{METADATA_FOLDER}") not in absent:
            names = _names(table)
            yield table, names
            if not names:
                absent.add(table.uri)


def _names(table: Storage) -> list[str]:
    """The names in the folder of a table's timeline, those of other files among them."""
    names = table.names(LAYOUT_2.folder) or []
    return names if any(map(_TIMES.match, names)) else table.names(LAYOUT_1.folder) or []


def _ahead(gateway: Gateway, newest: Newest, tables: Sequence[Storage]) -> int:
    """By how many seconds Hudi's clock must be ahead of UTC; 0 once the machine's clock is past `newest`."""
    while 0 < (behind := _behind(gateway, newest)) <= WAIT_SECONDS:
        time.sleep(behind)
    if behind <= 0:
        return 0
    ahead = math.ceil(behind)
    # Hudi writes no zone into a metadata table: its times are in its table's zone.
    if ahead <= _FURTHEST_SECONDS and any(_may_be_east(table) for table in tables if not is_metadata_table(table)):
        return ahead
    now = newest.at - timedelta(seconds=behind)
    raise ClockBehind(
        f"{newest.table}: the newest time on its timeline is {newest.at:%Y-%m-%d %H:%M:%S} UTC, and this machine's "
        f"clock says {now:%Y-%m-%d %H:%M:%S} UTC. Nothing was written: readers would not see rows with "
        "an earlier time. Correct this machine's clock. If it is right, another machine's clock was ahead when it "
        "wrote the table: batches go on by themselves once that time has come",
        table=newest.table,
        instant=newest.time,
        now=now,
    )


def _behind(gateway: Gateway, newest: Newest) -> float:
    """How many seconds until the JVM's clock is past `newest`."""
    now = int(gateway.jvm.System.currentTimeMillis())
    return (newest.at.timestamp() * 1000 + 1 - now) / 1000


def _may_be_east(table: Storage) -> bool:
    said = properties.read(table)
    return said is not None and said.get(_ZONE, "LOCAL").strip().upper() != "UTC"


def _zone(gateway: Gateway, ahead: int) -> Any:
    java = gateway.jvm.java.util
    if not ahead:
        return java.TimeZone.getTimeZone("UTC")
    # Java takes the offset from the name where it wants a ZoneId.
    name = f"+{ahead // 3600:02}:{ahead // 60 % 60:02}:{ahead % 60:02}"
    return java.SimpleTimeZone(ahead * 1000, name)


def _generator(gateway: Gateway) -> Any:
    return reduce(getattr, _GENERATOR.split("."), gateway.jvm)


def _last(gateway: Gateway) -> Any:
    """Hudi's field for the last time that it made in this JVM, for any table."""
    field = gateway.java_class(_GENERATOR).getDeclaredField("LAST_INSTANT_TIME")
    field.setAccessible(True)
    return field.get(None)
