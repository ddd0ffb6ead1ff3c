"""Plays scenarios, two at a time, and tells of each in a line."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

import pytest

from tests.browser.errors.play import Scenario
from tests.browser.errors.stage import Stage
from tests.browser.errors.window import Window, window
from tests.browser.errors.world import World

_saying = threading.Lock()


@dataclass(frozen=True)
class Played:
    """How a scenario went; `wrong` is empty where all was put right."""

    error: str
    seconds: float
    remedy: str
    rows: int
    wrong: str = ""

    def __str__(self) -> str:
        said = f"WRONG: {self.wrong}" if self.wrong else f"{self.rows:6} rows, each once  {self.remedy}"
        return f"{self.error:19} {self.seconds:4.0f} s  {said}"


def play_all(world: World, scenarios: Sequence[Scenario], jobs: int = 2) -> list[Played]:
    """Plays those that break only their own pipeline side by side, then each of the others alone."""
    waiting: Queue[Scenario] = Queue()
    for scenario in scenarios:
        if not scenario.alone:
            waiting.put(scenario)

    def work() -> list[Played]:
        done: list[Played] = []
        with window(world.airflow) as opened:
            while True:
                try:
                    scenario = waiting.get_nowait()
                except Empty:
                    return done
                done.append(play(world, opened, scenario))

    with ThreadPoolExecutor(jobs) as pool:
        played = [item for each in [pool.submit(work) for _ in range(jobs)] for item in each.result()]
    for scenario in scenarios:
        if scenario.alone:
            waiting.put(scenario)
    return played + work()


def play(world: World, opened: Window, scenario: Scenario) -> Played:
    """Plays one, counts the table, and says how it went."""
    begin, stage = time.monotonic(), Stage(world, opened, scenario.error.lower())
    remedy, count, wrong = "", 0, ""
    try:
        stage.make(**scenario.made)
        stage.known()
        remedy = scenario.play(stage)
        count = stage.count()
    except (Exception, pytest.fail.Exception) as error:
        wrong = f"{type(error).__name__}: {error}\n  {_where(error)}"
    played = Played(scenario.error, time.monotonic() - begin, remedy, count, wrong)
    with _saying:
        print(played, flush=True)
    return played


def _where(error: BaseException) -> str:
    """The lines of the scenarios that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if "tests/browser/errors" in frame.filename]
    return "; ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.line}" for frame in here)
