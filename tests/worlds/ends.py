"""What has to hold once a world is over: exact counts by three readers, and nothing left behind."""

from __future__ import annotations

import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_slshudi.hudi import leftovers
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.services.verification import verify
from airflow_provider_slshudi.storage.files import Storage
from airflow_provider_slshudi.system.points import Point
from tests.crash.counts import events, file_faults, ledger_faults, tables, timeline_faults
from tests.crash.held import is_over
from tests.crash.strays import strays
from tests.upserts import rows_by_rust, rows_by_spark
from tests.worlds.draw import Kind, Trouble
from tests.worlds.host import IDLE_SECONDS, WORLD
from tests.worlds.place import Line

_GONE_SECONDS = float(IDLE_SECONDS) + 20.0
_LATER = "3"
"""Later than all instants."""
_LEAVE_NOTES = (Point.OPEN_OWNED, Point.COMPACT_COMPLETED)
"""Who is killed there leaves a note that no later batch looks for."""


def faults(line: Line) -> list[str]:
    """All that is wrong with a pipeline that nobody works on."""
    work = line.work("faults")
    found = [*_model_faults(line)] if line.model is not None else [*_row_faults(line)]
    for table in tables(work):
        if line.drawn.trouble is Trouble.READ_ONLY or line.drawn.point in _LEAVE_NOTES:
            # As archival does a day later.
            leftovers.sweep_notes(table, Timeline.load(table), _LATER)
        wrong = *timeline_faults(table), *file_faults(table), *_left_files(table)
        found += [f"{Path(table.full('')).name}: {fault}" for fault in wrong]
    found += ledger_faults(work) if line.model is None else _live(line)
    found += _left_processes(line.folder)
    # What ends with its container removes nothing.
    return found if line.drawn.host.container else [*found, *_left_in_tmp(line.folder)]


def _row_faults(line: Line) -> Iterator[str]:
    wanted = {f"event-{number}" for number in range(line.logs.number)}
    work = line.work("faults")
    by_rust = Counter(events(work))
    yield from _differ("hudi-rs", by_rust, wanted, line.logs.excused)
    if line.pipeline.source.on_expired != "skip" and (silent := line.logs.excused - by_rust.keys()):
        yield f"{len(silent)} logs that the service deleted are lost, and no error said so"
    by_spark: Counter[str] = Counter()
    for table in tables(work):
        name = "event_id" if table is work.storage else "contents"
        city = ["city"] if line.drawn.kind is Kind.FIELD and table is work.storage else []
        rows = line.spark.read.format("hudi").load(table.full("")).select(name, *city).collect()
        for row in rows:
            id_ = row[0] if table is work.storage else _event_of(row[0])
            by_spark[id_] += 1
            if city and row[1] != line.logs.cities.get(id_):
                yield f"{id_} of city {line.logs.cities.get(id_)!r} is read as {row[1]!r}"
    yield from _differ("Spark", by_spark, wanted, line.logs.excused)
    proof = verify(line.work("verify"))
    if not proof.ok:
        totals = proof.totals
        yield f"verify: {totals.missing} lost, {totals.doubled} doubled, {totals.foreign} foreign"


def _event_of(contents: list[object]) -> str:
    return next(bytes(pair["value"]).decode() for pair in contents if bytes(pair["key"]) == b"event_id")  # type: ignore[index]


def _differ(reader: str, found: Counter[str], wanted: set[str], excused: set[str]) -> Iterator[str]:
    lost = sorted(wanted - excused - found.keys())
    if lost:
        yield f"{reader}: {len(lost)} logs lost ({', '.join(lost[:3])})"
    if doubled := sum(found.values()) - len(found):
        yield f"{reader}: {doubled} rows doubled"
    if strange := found.keys() - wanted:
        yield f"{reader}: {len(strange)} rows of no log, doubled or foreign ({', '.join(sorted(strange)[:3])})"


def _model_faults(line: Line) -> Iterator[str]:
    assert line.model is not None
    line.follow()
    expected = line.model.table()
    if line.waiting:
        yield f"{len(line.waiting)} changes lost: no committed batch has read them"
    readers: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
        "hudi-rs": lambda: rows_by_rust(line.pipeline.table.path),
        "Spark": lambda: rows_by_spark(line.spark, str(line.table)),
    }
    for reader, read in readers.items():
        rows = read()
        if rows != expected:
            wrong = sorted(set(rows) ^ set(expected), key=repr)
            keys = [row[:2] for row in rows]
            doubled = len(keys) - len(set(keys))
            what = f"{doubled} doubled" if doubled else "updates lost"
            yield f"{reader}: {what}, {len(rows)} rows, the model has {len(expected)}; differ: {wrong[:2]}"


def _live(line: Line) -> list[str]:
    live = line.work("faults").ledger.live(line.pipeline.name)
    return [f"live transactions: {live}"] if live else []


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
