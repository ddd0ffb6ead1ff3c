"""A host, clock, name, user, disk or shard that is less tidy than those of other tests."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.exact.outcome import Outcome
from tests.exact.trouble import Trouble
from tests.machine import ROOT
from tests.points import SITE
from tests.sessions import start_spark
from tests.worlds.draw import Drawn, draw
from tests.worlds.place import Places
from tests.worlds.planted import PLANTED, environment_of
from tests.worlds.run import run_world

WORLDS = 500


class Worlds(Trouble[Drawn]):
    """Drawn worlds: zones, clocks, locales, users, disks, hands.

    A world is its seed; those of a run are S, S + 1, ... A failed one is repeated alone by `--world`.
    """

    jobs = 2
    planted = tuple(PLANTED)

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("--world", type=int, action="append", help="the world of this seed; may be given again")
        parser.add_argument("--templates", type=Path, help="keep the templates of tables here, for the next call")

    def environment(self, options: Namespace) -> Mapping[str, str]:
        return {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", **environment_of(options.planted)}

    def cases(self, options: Namespace) -> Sequence[Drawn]:
        count = WORLDS if options.cases is None else options.cases
        return [draw(seed) for seed in options.world or range(options.seed, options.seed + count)]

    def run(self, cases: Sequence[Drawn], options: Namespace, folder: Path) -> Iterator[Outcome]:
        templates = options.templates or options.home / "templates"
        templates.mkdir(exist_ok=True)
        places = Places(folder, start_spark(), templates)
        yield from (run_world(places, drawn) for drawn in cases)
        places.close()
        places.spark.stop()
