"""Points: named once, reached by the code, and nothing but a look where nobody asks for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_provider_slshudi
from airflow_provider_slshudi.system.points import Point, Where, reach
from tests.points import FOLDER, armed_in
from tests.waiting import LONGEST_SECONDS, until

PACKAGE = Path(airflow_provider_slshudi.__file__).parent
REACH = "from airflow_provider_slshudi.system.points import *; reach(Point.PLAN_BEGUN); print('passed')"


def test_every_point_is_reached_in_one_place_at_least_and_by_its_name() -> None:
    code = "".join(file.read_text() for file in PACKAGE.rglob("*.py") if file.name != "points.py")
    used = set(re.findall(r"Point\.([A-Z_]+)", code))
    assert used == {point.name for point in Point}
    assert all(point.value == point.name.lower().replace("_", "-") for point in Point)
    assert {point.where for point in Point} == set(Where)


def test_nothing_happens_without_the_variable_nor_at_a_point_that_is_not_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    reach(Point.PLAN_BEGUN)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / Point.PLAN_LEASED.value).write_text("hold")
    reach(Point.PLAN_BEGUN)
    assert [file.name for file in tmp_path.iterdir()] == [Point.PLAN_LEASED.value]


def test_one_process_is_held_until_its_file_is_gone_and_others_pass(tmp_path: Path) -> None:
    armed = tmp_path / Point.PLAN_BEGUN.value
    armed.write_text("hold")
    environment = {**os.environ, **armed_in(tmp_path)}
    command = [sys.executable, "-c", REACH]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as held:
        claimed = armed.with_name(f"{armed.name}.{held.pid}")
        until("the process is held", claimed.exists)
        other = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        assert other.stdout == "passed\n"
        assert held.poll() is None
        claimed.unlink()
        assert held.communicate(timeout=LONGEST_SECONDS)[0] == "passed\n"
