"""What has to hold once a world is over: exact counts by three readers, and nothing left behind."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from tests.crash.held import is_over
from tests.crash.strays import strays
from tests.exact.counts import (
    by_spark,
    count_events,
    events,
    file_faults,
    ledger_faults,
    live_faults,
    tables,
    timeline_faults,
)
from tests.exact.outcome import Outcome
from tests.upserts import count_rows
from tests.worlds.draw import STANDING, Kind, Trouble
from tests.worlds.host import IDLE_SECONDS, WORLD
from tests.worlds.place import Line

_GONE_SECONDS = float(IDLE_SECONDS) + 20.0
_LATER = "3"
"""Later than all instants."""
_LEAVE_NOTES = (
    Point.OPEN_OWNED,
    Point.COMMIT_TOLD,
    Point.SETTLE_ABORTED,
    Point.CLUSTER_COMPLETED,
    Point.CLUSTER_SEEN,
    Point.COMPACT_COMPLETED,
    Point.COMPACT_SEEN,
)
"""Who is killed there leaves a note that no later batch looks for."""
_WAKE_WITH_NOTES = (Point.COMMIT_DECIDED,)
"""Who wakes there, once somebody else has decided, leaves its own."""


def faults(line: Line) -> list[str]:
    """All that is wrong with a pipeline that no run works on."""
    return count(line).faults


def count(line: Line) -> Outcome:
    """What readers show of a pipeline that no run works on, and what is left behind."""
    work = line.work("faults")
    outcome = _count_events(line) if line.model is None else _count_rows(line)
    drawn = line.drawn
    leaves_notes = drawn.trouble is Trouble.READ_ONLY or drawn.point in _LEAVE_NOTES
    leaves_notes |= drawn.trouble in STANDING and drawn.point in _WAKE_WITH_NOTES
    for table in tables(work):
        if leaves_notes:
            # As archival does a day later.
            leftovers.sweep_notes(table, Timeline.load(table), _LATER)
        wrong = *timeline_faults(table), *file_faults(table), *_left_files(table)
        outcome.wrong += [f"{Path(table.full('')).name}: {fault}" for fault in wrong]
    outcome.wrong += ledger_faults(work) if line.model is None else live_faults(work)
    outcome.wrong += _left_processes(line.folder)
    # What ends with its container removes nothing.
    outcome.wrong += [] if line.drawn.host.container else _left_in_tmp(line.folder)
    return outcome


def _count_events(line: Line) -> Outcome:
    work, names = line.work("faults"), {f"event-{number}" for number in range(line.logs.number)}
    outcome = count_events(work, names, line.spark, line.logs.excused)
    if line.pipeline.source.on_expired != "skip" and (silent := line.logs.excused - {*events(work)}):
        outcome.wrong.append(f"{len(silent)} logs that the service deleted are lost, and no error said so")
    if line.drawn.kind is Kind.FIELD:
        for id_, city in by_spark(line.spark)(work.storage, "event_id", "city"):
            if city != line.logs.cities.get(id_):
                outcome.wrong.append(f"{id_} of city {line.logs.cities.get(id_)!r} is read as {city!r}")
    proof = verify(line.work("verify"))
    if not proof.ok:
        totals = proof.totals
        outcome.wrong.append(f"verify: {totals.missing} lost, {totals.doubled} doubled, {totals.foreign} foreign")
    return outcome


def _count_rows(line: Line) -> Outcome:
    assert line.model is not None
    line.follow()
    outcome = count_rows(line.model.table(), len(line.logs.changes), line.work("faults").storage, line.spark)
    if line.waiting:
        outcome.lost += len(line.waiting)
        outcome.differences.append(f"{len(line.waiting)} changes lost: no committed batch has read them")
    return outcome


def _left_files(table: Storage) -> Iterator[str]:
    """Files of half a write, and exchange folders of what is decided."""
    half = {path for path, _ in table.walk() if path.endswith(".tmp")}
    if left := sorted({*half, *strays(table)}):
        yield f"{len(left)} files left: {left[:4]}"


def _left_processes(folder: Path) -> list[str]:
    """Processes of the world that still run; those that stay for the next batch get the time that they may take."""
    deadline = time.monotonic() + _GONE_SECONDS
    while found := [process for process in psutil.process_iter() if _is_of(process, folder)]:
        if time.monotonic() > deadline:
            said = [" ".join(process.cmdline()[:4])[-120:] for process in found]
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return [f"processes left: {said}"]
        time.sleep(0.1)
    return []


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.environ().get(WORLD) == str(folder) and not is_over(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def _left_in_tmp(folder: Path) -> list[str]:
    """Sockets that nobody answers at any more."""
    places = (place for root in folder.glob("tmp-*") for place in root.rglob("*"))
    left = [place.name for place in places if stat.S_ISSOCK(place.lstat().st_mode)]
    return [f"sockets left: {left}"] if left else []
