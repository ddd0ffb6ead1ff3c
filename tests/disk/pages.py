"""An act on a disk that takes so many pages and no more; then the space is given back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from airflow_provider_slshudi.transaction import context
from tests.crash.cases import Step
from tests.disk.acts import Act, carry_out, end, stage
from tests.worlds.draw import Trouble
from tests.worlds.host import Told
from tests.worlds.place import Places
from tests.worlds.run import Ended, World

_WAIT_SECONDS = 2.0
_ENOUGH = 3
"""So many numbers of pages in a row have to do, before more are taken to do as well."""


def on_full_disk(places: Places, act: Act, pages: int, *, ledger_disk: bool = False) -> tuple[Ended, bool]:
    """Ends one act on a disk with `pages` pages of 4 KiB left, and says whether they were enough.

    Where they were not, another run tries to decide what is left while the disk is full, as a retry does.
    """
    with stage(places, act, pages, ledger_disk=ledger_disk) as (world, told):
        with world.full_disk(Trouble.FULL):
            with patch.object(context, "REST_SECONDS", _WAIT_SECONDS):
                told = world.note(act.name, carry_out(world, act, told))
            if not told.ok:
                with patch.object(context, "LEASE_WAIT_SECONDS", _WAIT_SECONDS):
                    world.note("retried", world.here([Step.SETTLE.value], "run-1r", Told()))
        if ledger_disk:
            _let_leases_expire(world)
        return end(world, act), told.ok


def _let_leases_expire(world: World) -> None:
    """Time passes: a lease that a full disk kept from being given back would hold the next run up for three minutes."""
    work = world.line.work("run-1x")
    for holding in work.ledger.holdings(work.pipeline.name):
        world.ended.notes.append(f"the lease of {holding.holder} expires")
        work.ledger.break_lease(holding)


def sweep(places: Places, act: Act, every: int = 1, *, ledger_disk: bool = False) -> Iterator[Ended]:
    """The act with no page left, with `every` pages, and so on until they are enough."""
    enough, pages = 0, 0
    while enough < _ENOUGH:
        ended, ok = on_full_disk(places, act, pages, ledger_disk=ledger_disk)
        enough = enough + 1 if ok else 0
        yield replace(ended, notes=[f"{act.name}, {pages} pages", *ended.notes])
        pages += every
