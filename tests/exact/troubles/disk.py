"""A disk fills up, or a loss of power cuts a file off."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from airflow_provider_slshudi.transaction import context
from tests.crash.cases import Step
from tests.disk import cuts
from tests.disk.acts import ACTS, Act, carry_out, end, stage
from tests.exact.outcome import Outcome
from tests.exact.step import Told
from tests.exact.trouble import Trouble
from tests.sessions import start_spark
from tests.worlds.draw import Trouble as Befalls
from tests.worlds.place import Places
from tests.worlds.run import World

PARTS = ("pages", "ledger", "cuts")


@dataclass(frozen=True)
class Case:
    """An act on each disk of a kind, or with each of its files cut off."""

    act: Act
    part: str

    def __str__(self) -> str:
        return f"{self.act.name}, {self.part}"


_WAIT_SECONDS = 2.0
_ENOUGH = 3
"""So many numbers of pages in a row have to do, before more are taken to do as well."""


def on_full_disk(places: Places, act: Act, pages: int, *, ledger_disk: bool = False) -> tuple[Outcome, bool]:
    """Ends one act on a disk with `pages` pages of 4 KiB left, and says whether they were enough.

    Where they were not, another run tries to decide what is left while the disk is full, as a retry does.
    """
    with stage(places, act, pages, ledger_disk=ledger_disk) as (world, told):
        with world.full_disk(Befalls.FULL):
            with patch.object(context, "REST_SECONDS", _WAIT_SECONDS):
                told = world.note(act.name, carry_out(world, act, told))
            if not told.ok:
                with patch.object(context, "LEASE_WAIT_SECONDS", _WAIT_SECONDS):
                    world.note("retried", world.here([Step.SETTLE.value], "run-1r", Told()))
        if ledger_disk:
            _let_leases_expire(world)
        return end(world, act, f"{pages} pages of the {'ledger' if ledger_disk else 'table'}'s disk"), told.ok


def _let_leases_expire(world: World) -> None:
    """Time passes: a lease that a full disk kept from being given back would hold the next run up for three minutes."""
    work = world.line.work("run-1x")
    for holding in work.ledger.holdings(work.pipeline.name):
        world.ended.notes.append(f"the lease of {holding.holder} expires")
        work.ledger.break_lease(holding)


def sweep(places: Places, act: Act, every: int = 1, *, ledger_disk: bool = False) -> Iterator[Outcome]:
    """The act with no page left, with `every` pages, and so on until they are enough."""
    enough, pages = 0, 0
    while enough < _ENOUGH:
        ended, ok = on_full_disk(places, act, pages, ledger_disk=ledger_disk)
        enough = enough + 1 if ok else 0
        yield ended
        pages += every


class Disk(Trouble[Case]):
    """Acts on disks that are full at each page, and with each file cut off that they wrote.

    Each act is carried out on a disk of the table, then of the ledger, that takes 0, N, 2 N, ... pages of 4 KiB until
    they are enough; then each file that it wrote is cut off.
    """

    jobs = 2

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--act", action="append", choices=sorted(ACTS), help="this one alone; may be given again")
        parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; may be given again")
        parser.add_argument("--every", type=int, default=1, help="pages between two disks (default: %(default)s)")

    def cases(self, options: Namespace) -> Sequence[Case]:
        return [Case(ACTS[name], part) for part in options.only or PARTS for name in options.act or ACTS]

    def run(self, cases: Sequence[Case], options: Namespace, folder: Path) -> Iterator[Outcome]:
        places = Places(folder, start_spark())
        for case in cases:
            if case.part == "cuts":
                yield from cuts.sweep(places, case.act)
            else:
                yield from sweep(places, case.act, options.every, ledger_disk=case.part == "ledger")
        places.close()
        places.spark.stop()
