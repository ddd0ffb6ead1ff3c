"""The clock of a table's timelines: UTC, and later than all that is there (read in Hudi 1.2.0).

A log file belongs to the newest base file that was requested before it was completed, and of two base files that of
the newer instant counts (hudi.apache.org/docs/timeline), the metadata table's files among them. So rows that are
committed at a time behind one that is there may be seen by nobody. Hudi takes the machine's clock in the JVM's zone,
whatever the table's property says of zones, and compares it with no timeline.
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
from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.timeline import FOLDER, METADATA_FOLDER
from airflow_provider_slshudi.storage import Storage

WAIT_SECONDS = 10.0
"""Clocks of machines differ by as much; a clock that is behind by more was set wrong."""
# No place on earth is further ahead of UTC.
_FURTHEST_SECONDS = 14 * 3600
_TIMES = re.compile(r"(\d{14,})(?:_(\d{14,}))?\.")
_DIGITS = "%Y%m%d%H%M%S%f"
_ZONE = "hoodie.table.timeline.timezone"
_GENERATOR = "org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator"
# What it begins with.
_NEVER = "0"


@dataclass(frozen=True, order=True)
class Newest:
    """The newest time on some timelines, as Hudi writes times, and whose it is."""

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
                f"{self.table}/{FOLDER} has {self.time}, which is no time: {error}", table=self.table, instant=self.time
            ) from error


def tables_of(pipeline: Pipeline, but_for: str = "") -> list[Storage]:
    """The tables that share a clock, be they there or not: main table and quarantine with the metadata table of each.

    `but_for` names one by its place below the pipeline's table, which may be the quarantine, see `quarantine.table_of`.
    """
    names = [
        f"{path}/{within}".rstrip("/")
        for path in (pipeline.table.path.rstrip("/"), pipeline.quarantine_path.rstrip("/"))
        for within in ("", METADATA_FOLDER)
    ]
    left_out = f"{pipeline.table.path.rstrip('/')}/{but_for}" if but_for else None
    return [Storage(name) for name in names if name != left_out]


@contextmanager
def rising(gateway: Gateway, tables: Sequence[Storage]) -> Iterator[bool]:
    """Every time that Hudi makes in the block is in UTC and later than all on the timelines of `tables`.

    Waits for a clock that is a little behind. Tables that were written in a zone east of UTC have times that are yet to
    come: as long as one says that it may be such, Hudi's clock is put forward by just as much as it takes, so that UTC
    overtakes it within hours. Gives whether Hudi's clock is UTC.

    Raises:
        ClockBehind: the machine's clock is behind what is there; nothing was written.
        TimelineUnreadable: the storage did not answer.
    """
    newest = _newest(tables)
    ahead = 0 if newest is None else _ahead(gateway, newest, tables)
    zones, last = gateway.jvm.java.util.TimeZone, _last(gateway)
    before = zones.getDefault()
    # Not Hudi's own setting of UTC: some of it, as what cleaning keeps by hours, goes by the JVM's zone all the same.
    zones.setDefault(_zone(gateway, ahead))
    _generator(gateway).setCommitTimeZone(gateway.hudi.common.model.HoodieTimelineTimeZone.LOCAL)
    # Of this table, not of one that the process served before: Hudi waits until the clock is past it.
    last.set(newest.time if newest is not None else _NEVER)
    try:
        yield ahead == 0
    finally:
        last.set(_NEVER)
        zones.setDefault(before)


def zone_of_new(gateway: Gateway) -> Any:
    """What a table that is made now says of its times: UTC, unless the JVM's clock is another, as in `rising`."""
    zones = gateway.hudi.common.model.HoodieTimelineTimeZone
    offset = gateway.jvm.java.util.TimeZone.getDefault().getOffset(gateway.jvm.System.currentTimeMillis())
    return zones.LOCAL if offset else zones.UTC


def to_utc(tables: Sequence[Storage]) -> None:
    """Has tables say that their times are in UTC; for whoever holds the lease, once their newest times are past.

    A table that was made without that says that they are in the zone of whoever reads it, which matters to readers that
    are asked for a date. Hudi's own way of changing the file deletes it first.
    """
    for table in tables:
        if _may_be_east(table):
            properties.put(table, _ZONE, "UTC")


def _newest(tables: Sequence[Storage]) -> Newest | None:
    """The newest request or completion; one listing for each timeline."""
    found = (
        Newest(digits[:17].ljust(17, "9"), table.uri)
        for table in tables
        for name in table.names(FOLDER) or []
        if (match := _TIMES.match(name)) is not None
        for digits in match.groups()
        # The metadata table's first requests have times that count from nought.
        if digits and not digits.startswith("0")
    )
    return max(found, default=None)


def _ahead(gateway: Gateway, newest: Newest, tables: Sequence[Storage]) -> int:
    """By how many seconds Hudi's clock has to go before UTC; 0 once the machine's is past `newest`."""
    while 0 < (behind := _behind(gateway, newest)) <= WAIT_SECONDS:
        time.sleep(behind)
    if behind <= 0:
        return 0
    ahead = math.ceil(behind)
    # Hudi says nothing of zones where it makes a metadata table: it is as its table.
    if ahead <= _FURTHEST_SECONDS and any(_may_be_east(table) for table in tables if not _is_metadata(table)):
        return ahead
    now = newest.at - timedelta(seconds=behind)
    raise ClockBehind(
        f"{newest.table}: the newest time on its timeline is {newest.at:%Y-%m-%d %H:%M:%S} UTC, and this machine's "
        f"clock says {now:%Y-%m-%d %H:%M:%S} UTC. Nothing was written: what comes next needs a later time, or readers "
        "would not see it. Correct this machine's clock. Where it is right, another clock was ahead when the table was "
        "written: once that time has come all goes on by itself",
        table=newest.table,
        instant=newest.time,
        now=now,
    )


def _behind(gateway: Gateway, newest: Newest) -> float:
    """How many seconds the clock that Hudi takes needs to be past `newest`."""
    now = int(gateway.jvm.System.currentTimeMillis())
    return (newest.at.timestamp() * 1000 + 1 - now) / 1000


def _is_metadata(table: Storage) -> bool:
    return table.uri.endswith(METADATA_FOLDER)


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
    """Where Hudi keeps the last time that it made in this JVM, for whatever table."""
    field = gateway.java_class(_GENERATOR).getDeclaredField("LAST_INSTANT_TIME")
    field.setAccessible(True)
    return field.get(None)
