"""A file that an act wrote is cut off, as a loss of power leaves it; the act is noted in the ledger, or not yet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_provider_slshudi.notes import ROOT
from tests.disk.acts import Act, carry_out, end, stage
from tests.worlds.place import Line, Places
from tests.worlds.run import Ended

PUT_BACK = "the file was put back"
"""Among a world's notes: an error that names the file asked for it."""
_SHARES = (0.0, 0.3, 0.99)


@dataclass(frozen=True)
class Cut:
    """What a loss of power leaves of the files that an act wrote.

    Attributes:
        number: which of the files, in the order of their names; their names differ between runs.
        share: how much of it is left.
        noted: whether the ledger has what the act noted there.
        summed: whether Hadoop's checksum of the file is left, too.
    """

    number: int
    share: float
    noted: bool
    summed: bool


def after_power_loss(places: Places, act: Act, cut: Cut) -> Ended | None:
    """Ends a world in which an act's file was cut off; None where the act writes fewer files."""
    with stage(places, act) as (world, told):
        before, noted = _files(world.line), _ledger(world.line)
        done = carry_out(world, act, told)
        if not done.ok:
            raise RuntimeError(f"{act.name} failed: {done}")
        written = [file for file, size in _files(world.line).items() if before.get(file) != size and size]
        if cut.number >= len(written):
            return None
        if not cut.noted:
            _put_back(world.line, noted)
        file = written[cut.number]
        size = file.stat().st_size
        kept = min(int(size * cut.share), size - 1)
        world.line.backup[file] = file.read_bytes()
        os.truncate(file, kept)
        if not cut.summed:
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        what = f"{file.relative_to(world.line.folder / 'lake')} cut to {kept} of {size} bytes"
        state = f"{'' if cut.noted else 'not '}noted, {'with' if cut.summed else 'without'} its checksum"
        world.ended.notes.append(f"{act.name}: {what}, {state}")
        ended = end(world, act)
        if not world.line.backup:
            ended.notes.insert(1, PUT_BACK)
        return ended


def sweep(places: Places, act: Act) -> Iterator[Ended]:
    """Each file that the act wrote, cut at each of three lengths."""
    number = 0
    while True:
        for share in _SHARES:
            for noted in _noted(act):
                ended = after_power_loss(places, act, Cut(number, share, noted, summed=share == _SHARES[1]))
                if ended is None:
                    return
                yield replace(ended, notes=ended.notes)
        number += 1


def _noted(act: Act) -> tuple[bool, ...]:
    """Whether the ledger has what the act notes there, as far as that is to be tried."""
    if act.commits:
        # A batch that the ledger has as committed is not committed again: its disk has to have kept it.
        return (False,)
    return (True,) if act.serves else (False, True)


def _files(line: Line) -> dict[Path, tuple[int, int] | None]:
    """Files of the tables, the package's own notes last, with size and time; None for those of no content."""
    found: dict[Path, tuple[int, int] | None] = {}
    for file in sorted((line.folder / "lake").rglob("*"), key=lambda file: (ROOT in str(file), file)):
        if file.is_file() and file.suffix != ".crc":
            told = file.stat()
            found[file] = (told.st_size, told.st_mtime_ns) if told.st_size else None
    return found


def _ledger(line: Line) -> Path:
    copy = line.folder / "ledger-before"
    line.forget()
    shutil.copytree(line.folder / "ledger", copy)
    return copy


def _put_back(line: Line, copy: Path) -> None:
    line.forget()
    for file in (line.folder / "ledger").iterdir():
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, line.folder / "ledger")
