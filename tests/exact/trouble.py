"""What a trouble is, and where each is found by its name."""

from __future__ import annotations

import importlib
import logging
from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from tests.exact.outcome import AnyCase, Outcome, each

TROUBLES: Mapping[str, str] = {
    "crash": "crash:Crash",
    "hosts": "hosts:Hosts",
    "outage": "outage:Outages",
    "disk": "disk:Disk",
    "worlds": "worlds:Worlds",
    "starts": "starts:Starts",
    "chaos": "soaks:chaos",
    "handoff": "soaks:handoff",
    "topology": "soaks:topology",
    "soak-crash": "soaks:crash",
    "soak-pull": "soaks:pull",
    "soak-maintain": "soaks:maintain",
    "soak-columns": "soaks:columns",
    "soak-upsert": "soaks:upsert",
    "soak-splits": "soaks:splits",
}
"""Where `tests.exact.troubles` makes each trouble: a module, and what gives the trouble there."""


class Trouble(ABC, Generic[AnyCase]):
    """A kind of trouble: its options, its cases for a seed, and what carries these out.

    Attributes:
        jobs: how many processes share the cases, unless the command says otherwise.
        keeps: whether the folder of a run that was not exact stays, to be looked at.
        planted: the names of bugs that may be planted to see that the cases find them.
    """

    jobs = 1
    keeps = False
    planted: Collection[str] = ()

    def add_options(self, parser: ArgumentParser) -> None:
        """Adds the options that are the trouble's own."""

    def environment(self, options: Namespace) -> Mapping[str, str]:
        """The variables that processes of the cases need from their start."""
        return {}

    @abstractmethod
    def cases(self, options: Namespace) -> Sequence[AnyCase]:
        """The cases, by the options and their seed; a case says in one line what it is."""

    @abstractmethod
    def run(self, cases: Sequence[AnyCase], options: Namespace, folder: Path) -> Iterator[Outcome]:
        """Carries cases out in a folder, and gives the outcome of each."""


@dataclass(frozen=True)
class Seeded:
    """A long run that its seed draws."""

    what: str
    seed: int

    def __str__(self) -> str:
        return f"{self.what}, seed {self.seed}"


class Soak(Trouble[Seeded]):
    """A trouble whose cases are long runs, one unless more were asked for.

    Args:
        about: says what happens.
        carry_out: takes the options, a folder, the seed and the outcome that it fills in.
        keeps: as for every trouble.
        defaults: the options; one of several words may be given again, and without it all of them count.
    """

    def __init__(
        self,
        about: str | None,
        carry_out: Callable[[Namespace, Path, int, Outcome], object],
        keeps: bool = False,
        **defaults: Any,
    ) -> None:
        self.__doc__, self.keeps, self._carry_out, self._defaults = about, keeps, carry_out, defaults

    def add_options(self, parser: ArgumentParser) -> None:
        for name, default in self._defaults.items():
            if default is False:
                parser.add_argument(f"--{name}", action="store_true")
            elif isinstance(default, tuple):
                parser.add_argument(f"--{name}", action="append", choices=default)
            else:
                parser.add_argument(f"--{name}", type=type(default), default=default, help="default: %(default)s")

    def cases(self, options: Namespace) -> Sequence[Seeded]:
        what = ", ".join(f"{name} {value}" for name in self._defaults if (value := getattr(options, name)))
        return [Seeded(what, options.seed + number) for number in range(options.cases or 1)]

    def run(self, cases: Sequence[Seeded], options: Namespace, folder: Path) -> Iterator[Outcome]:
        def carry_out(case: Seeded, outcome: Outcome) -> None:
            (home := folder / str(case.seed)).mkdir()
            self._carry_out(options, home, case.seed, outcome)

        yield from each(cases, carry_out)


def trouble_of(name: str) -> Trouble[Any]:
    """The trouble of a name."""
    module, _, made = TROUBLES[name].partition(":")
    trouble: Trouble[Any] = getattr(importlib.import_module(f"tests.exact.troubles.{module}"), made)()
    return trouble


def chosen(options: Namespace, **named: object) -> bool:
    """Whether options ask for what has these values; an option that was not given asks for each."""
    return all(not getattr(options, name) or value in getattr(options, name) for name, value in named.items())


def silence() -> None:
    """Keeps errors of the service, of which thousands are meant to be, out of the output."""
    for logger in ("airflow_provider_slshudi", "aliyun"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
