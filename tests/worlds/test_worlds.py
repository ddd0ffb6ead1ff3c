"""The short form of the worlds: a few, always the same; `make worlds` draws five hundred anew."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Step, Victim
from tests.exact.outcome import Jammed
from tests.exact.step import Told
from tests.needs import needs_root
from tests.worlds import bugs
from tests.worlds.draw import AT_POINT, HOME, Drawn, Kind, Shards, Trouble, draw
from tests.worlds.ends import faults
from tests.worlds.exits import command_for
from tests.worlds.nasty import FOLDERS
from tests.worlds.place import Places, described
from tests.worlds.planted import PLANTED
from tests.worlds.run import run_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 500
# Fixed, so that a run here says something of the change at hand: new worlds are drawn by `make worlds`.
SEEDS = (10, 69, 72, 118, 896)


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    made = Places(tmp_path_factory.mktemp("w"), spark)
    yield made
    made.close()


@needs_root
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_world_ends_with_exact_counts_and_a_healthy_next_batch(places: Places, seed: int) -> None:
    ended = run_world(places, draw(seed))
    print(ended)
    assert ended.ok, f"{ended}: repeat it by `python -m tests.exact --trouble worlds --world {seed}`"


def test_a_seed_is_one_world_and_many_seeds_are_all_that_can_be_drawn() -> None:
    worlds = [draw(seed) for seed in range(MANY)]
    assert worlds == [draw(seed) for seed in range(MANY)]
    assert {world.kind for world in worlds} == set(Kind)
    assert {world.act for world in worlds} == set(Step)
    assert {world.trouble for world in worlds} == set(Trouble)
    assert {world.shards for world in worlds} == set(Shards)
    assert {world.victim for world in worlds} == {None, *Victim} - {Victim.SCHEDULER, Victim.WOKEN}
    met = {world.point for world in worlds if world.trouble in AT_POINT}
    assert len(met) > len(Point) * 2 / 3
    hosts = [world.host for world in worlds]
    assert {host.language for host in hosts} == {"C.UTF-8", "C", "tr_TR.UTF-8", "xx_XX.UTF-8"}
    assert any(host.moved for host in hosts) and any(host.container for host in hosts)
    assert any(host.clock for host in hosts) and any(host.ledger_clock for host in hosts)


@pytest.mark.parametrize("kind", Kind)
def test_a_pipeline_may_have_every_folder_that_is_drawn(kind: Kind) -> None:
    for folder in FOLDERS:
        assert described(kind, Path("/lake") / folder).table.path == f"file:///lake/{folder}"


def test_a_world_that_lost_or_doubled_rows_says_so(places: Places) -> None:
    drawn = Drawn(seed=1, kind=Kind.FIELD, act=Step.PLAN)
    with places.line(drawn) as line:
        assert faults(line) == []
        line.logs.number += 10
        assert any("10 logs lost" in fault for fault in faults(line))
        line.logs.number -= 20
        assert any("doubled or foreign" in fault for fault in faults(line))
        (Path(line.table) / ".hoodie" / "half.tmp").touch()
        assert any("half.tmp" in fault for fault in faults(line))


def test_an_error_that_names_no_command_is_a_jam() -> None:
    assert command_for(Told(error="LedgerLost")) == "ledger rebuild"
    told = Told(error="JobFailed", text="somewhere: `slshudi table rebuild-metadata clicks` makes it anew")
    assert command_for(told) == "table rebuild-metadata"
    with pytest.raises(Jammed, match="names no command"):
        command_for(Told(error="Killed"))


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_replaces_what_is_there(name: str) -> None:
    for item in PLANTED[name]:
        owner = importlib.import_module(item.module)
        *path, attribute = item.attribute.split(".")
        for part in path:
            owner = getattr(owner, part)
        module, _, function = item.by.partition(":")
        there = getattr(owner, attribute)
        put = getattr(importlib.import_module(module), function)(there)
        assert put != there and callable(put) == callable(there)


def test_bugs_can_be_planted_in_modules_that_are_being_imported() -> None:
    assert "\nfrom airflow_provider_slshudi" not in Path(str(bugs.__file__)).read_text()


def test_what_is_drawn_is_told_in_one_line() -> None:
    drawn = replace(draw(7), host=replace(HOME, umask=0o027))
    assert "seed=7" in str(drawn) and "0o27" in str(drawn) and "\n" not in str(drawn)
