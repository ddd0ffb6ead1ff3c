"""Long runs: batch after batch, or request after request, while processes die and services fail."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import tests.chaos.downstream
import tests.chaos.place
import tests.chaos.run
import tests.soak.columns
import tests.soak.crash
import tests.soak.maintain
import tests.soak.pull
import tests.soak.splits
import tests.soak.upsert
import tests.topology.place
from airflow_provider_slshudi.system.processes import adopt_orphans
from tests.exact.outcome import Outcome
from tests.exact.trouble import Soak, silence
from tests.exact.world import log_service
from tests.sessions import start_spark


def chaos() -> Soak:
    """Pipelines under Airflow, side by side or read by one fleet; the first of them has mirrors, or all."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        silence()
        adopt_orphans()
        mirrored = options.pipelines if options.mirrors else 1
        with tests.chaos.place.place(home, options.pipelines, "fleet" * options.fleet, mirrored) as place:
            tests.chaos.run.disturb(place, options.batches, seed, outcome)

    options = {"batches": 200, "pipelines": 3, "fleet": False, "mirrors": False}
    return Soak(tests.chaos.run.__doc__, carry_out, keeps=True, **options)


def handoff() -> Soak:
    """Consumers behind pipelines under Airflow, side by side."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        silence()
        adopt_orphans()
        served = tests.chaos.place.SERVED
        with tests.chaos.place.place(home, options.pipelines, mirrored=0, maintenance=served) as place:
            tests.chaos.downstream.disturb(place, options.batches, seed, outcome)

    return Soak(tests.chaos.downstream.__doc__, carry_out, keeps=True, batches=200, pipelines=3)


def topology() -> Soak:
    """What several machines would run, and all of it dies."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        silence()
        adopt_orphans()
        with tests.topology.place.place(home) as place:
            tests.chaos.run.disturb(place, options.batches, seed, outcome)

    return Soak(tests.topology.place.__doc__, carry_out, keeps=True, batches=200)


def crash() -> Soak:
    """The local server dies."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        tests.soak.crash.crash(home, options.kills, seed, outcome)

    return Soak(tests.soak.crash.__doc__, carry_out, kills=50)


def pull() -> Soak:
    """Requests fail."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        silence()
        tests.soak.pull.soak(home, options.logs, options.failing, seed, outcome)

    return Soak(tests.soak.pull.__doc__, carry_out, logs=1_000_000, failing=0.2)


def maintain() -> Soak:
    """Table services run beside batches, with a pause of so many seconds between; a plot shows the figures."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        with log_service(home) as server:
            served = tests.soak.maintain.soak(home, start_spark(), server, options.batches, options.pause, outcome)
        if options.plot:
            tests.soak.maintain.draw(Path(options.plot), served)

    return Soak(tests.soak.maintain.__doc__, carry_out, batches=500, pause=45.0, plot="")


def columns() -> Soak:
    """Columns change."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        with log_service(home) as server:
            scenario = tests.soak.columns.new_table(server, spark := start_spark(), home)
            tests.soak.columns.soak(scenario, spark, seed, options.batches, options.kills, outcome)

    return Soak(tests.soak.columns.__doc__, carry_out, batches=60, kills=9)


def upsert() -> Soak:
    """Upserts into a table of each type."""
    types = ("merge_on_read", "copy_on_write")

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        for type_ in options.type or types:
            tests.soak.upsert.soak(home / type_, start_spark(), type_, options.batches, seed, outcome)

    return Soak(tests.soak.upsert.__doc__, carry_out, batches=200, type=types)


def splits() -> Soak:
    """Shards are split and merged under upserts; a case is a logstore of so many histories."""

    def carry_out(options: Namespace, home: Path, seed: int, outcome: Outcome) -> None:
        type_ = ("merge_on_read", "copy_on_write")[seed % 2]
        tests.soak.splits.soak(home, start_spark(), type_, options.histories, seed, outcome)

    return Soak(tests.soak.splits.__doc__, carry_out, histories=50)
