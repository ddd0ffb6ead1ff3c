"""Two machines, short: what one knows of the other's processes, and one case; `make hosts` has every point."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_slshudi.system.points import Point
from tests.crash.cases import Step
from tests.crash.world import World
from tests.exact.outcome import Outcome
from tests.exact.troubles.hosts import Case, Loss, all_of_them, pair, run_case, world
from tests.hosts.machine import POSSIBLE, Machine, machine
from tests.machine import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.skipif(not POSSIBLE, reason="namespaces take root")]

BOOT = "5b1e0d0e-7a4c-4b7e-9a39-0c4f2f6f4d11"
NAME_OF_ITSELF = (
    "import time; from airflow_provider_slshudi.system.processes import *; print(this_process(), flush=True)"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("hosts"), spark) as it:
        yield it


def inside(where: Machine, code: str) -> subprocess.Popen[str]:
    command = [*where.prefix, sys.executable, "-c", code]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def says(where: Machine, code: str) -> str:
    with inside(where, code) as child:
        assert child.stdout is not None
        return child.stdout.read().strip()


def is_gone(where: Machine, process: str) -> bool:
    code = f"from airflow_provider_slshudi.system.processes import *; print(is_gone({process!r}))"
    return {"True": True, "False": False}[says(where, code)]


@pytest.mark.parametrize("boot", ["", BOOT], ids=["containers of one host", "two hosts"])
def test_of_another_machines_process_nothing_is_known_living_or_dead(tmp_path: Path, boot: str) -> None:
    """Both have one name; the number of the one's process is free on the other."""
    with machine(tmp_path / "1", []) as first, machine(tmp_path / "2", [], boot=boot) as second:
        with inside(first, f"{NAME_OF_ITSELF}; time.sleep(600)") as living:
            assert living.stdout is not None
            process = living.stdout.readline().strip()
            assert not is_gone(first, process)
            assert not is_gone(second, process)
            first.vanish()
        assert not is_gone(second, process)


def test_of_containers_whose_processes_are_numbered_together_each_knows_the_others(tmp_path: Path) -> None:
    with (
        machine(tmp_path / "1", [], shared=True) as first,
        machine(tmp_path / "2", [], shared=True) as second,
        inside(first, f"{NAME_OF_ITSELF}; time.sleep(600)") as living,
    ):
        assert living.stdout is not None
        process = living.stdout.readline().strip()
        assert not is_gone(second, process)
        first.vanish()
        assert is_gone(second, process)


def test_a_batch_goes_on_where_its_machine_stood_still_past_its_end(made: World) -> None:
    run_case(made, Case(Step.COMMIT, Point.COMMIT_LISTED, Loss.STANDS_STILL, ahead=120), Outcome())


def test_machines_with_one_folder_for_temporary_files_have_resident_processes_of_their_own(made: World) -> None:
    with pair(made, "residents") as two:
        shared = two.line.folder / "tmp"
        shared.mkdir()
        for where in (two.first, two.second):
            two.batch(where, temporary=shared)
            two.line.put(10)
        assert len(list(shared.glob("slshudi-*/*.sock"))) == 2
        two.first.vanish()
        two.batch(two.second, temporary=shared)
        two.ends_well(0)


def test_the_whole_has_every_step_of_a_batch_and_every_trouble() -> None:
    cases = all_of_them()
    assert {case.loss for case in cases} == set(Loss)
    assert {case.ahead for case in cases} == {0, 120, -120}
    assert len(set(cases)) == len(cases) > 100
