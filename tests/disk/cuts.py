"""A file that an act wrote is cut off, as a loss of power leaves it; the act is noted in the ledger, or not yet.

A loss of power takes what was written since the table's disk was last synchronized, and nothing of before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from airflow_provider_slshudi.handover import ROOT
from airflow_provider_slshudi.storage.files import Storage
from tests.disk.acts import Act, carry_out, end, stage
from tests.exact.outcome import Outcome
from tests.worlds.place import Line, Places

_SHARES = (0.0, 0.3, 0.99)
_Files = dict[Path, tuple[int, int]]


@dataclass(frozen=True)
class Cut:
    """What a loss of power leaves of the files that an act wrote.

    Attributes:
        number: which of the files: those that were written before the disk was first synchronized, then those after it,
            each in the order of their names, the package's own notes last. Names differ between runs.
        share: how much of it is left.
        noted: whether the ledger has what the act noted there.
        summed: whether Hadoop's checksum of the file is left, too.
    """

    number: int
    share: float
    noted: bool
    summed: bool


def after_power_loss(places: Places, act: Act, cut: Cut) -> Outcome | None:
    """Ends a world in which an act's file was cut off; None where the act writes fewer files."""
    with stage(places, act) as (world, told):
        line = world.line
        ledger = _copy(line, line.folder / "ledger")
        states = [_copy(line, line.folder / "lake")]
        with _synchronizing(line, states):
            done = carry_out(world, act, told)
        if not done.ok:
            raise RuntimeError(f"{act.name} failed: {done}")
        states.append(_copy(line, line.folder / "lake"))
        written = [(state, file) for earlier, state in pairwise(states) for file in _written(earlier, state)]
        if cut.number >= len(written):
            return None
        state, name = written[cut.number]
        _put_back(line.folder / "lake", state)
        noted = cut.noted and state == states[-1]
        if not noted:
            line.forget()
            _put_back(line.folder / "ledger", ledger)
        file = line.folder / "lake" / name
        size = file.stat().st_size
        kept = min(int(size * cut.share), size - 1)
        line.backup[file] = file.read_bytes()
        os.truncate(file, kept)
        if not cut.summed:
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        how = f"{'' if noted else 'not '}noted, {'with' if cut.summed else 'without'} its checksum"
        ended = end(world, act, f"{name} cut to {kept} of {size} bytes, {how}")
        # An error named the file, and asked for this.
        ended.figures["put back"] += not line.backup
        return ended


def sweep(places: Places, act: Act) -> Iterator[Outcome]:
    """Each file that the act wrote, cut at each of three lengths."""
    number = 0
    while True:
        for share in _SHARES:
            for noted in _noted(act):
                ended = after_power_loss(places, act, Cut(number, share, noted, summed=share == _SHARES[1]))
                if ended is None:
                    return
                yield ended
        number += 1


def _noted(act: Act) -> tuple[bool, ...]:
    """Whether the ledger has what the act notes there, as far as that is to be tried."""
    if act.commits:
        # A batch that the ledger has as committed is not committed again: its disk has to have kept it.
        return (False,)
    return (True,) if act.serves else (False, True)


@contextmanager
def _synchronizing(line: Line, states: list[Path]) -> Iterator[None]:
    """Adds a copy of the tables to `states` whenever their disk is synchronized."""
    original = Storage.sync

    def sync(self: Storage) -> None:
        original(self)
        states.append(_copy(line, line.folder / "lake"))

    with patch.object(Storage, "sync", sync):
        yield


def _copy(line: Line, folder: Path) -> Path:
    line.forget()
    copy = line.folder / f"{folder.name}-{len(list(line.folder.iterdir()))}"
    shutil.copytree(folder, copy)
    return copy


def _put_back(folder: Path, copy: Path) -> None:
    for there in folder.iterdir():
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    shutil.copytree(copy, folder, dirs_exist_ok=True)


def _written(before: Path, after: Path) -> list[Path]:
    """Files with content that are new or changed, the package's own notes last."""
    then, now = _files(before), _files(after)
    return sorted((file for file in now if then.get(file) != now[file]), key=lambda file: (ROOT in str(file), file))


def _files(lake: Path) -> _Files:
    """Files with their sizes and times, but empty ones and checksums."""
    told = {file: file.stat() for file in lake.rglob("*") if file.is_file() and file.suffix != ".crc"}
    return {file.relative_to(lake): (stat.st_size, stat.st_mtime_ns) for file, stat in told.items() if stat.st_size}
