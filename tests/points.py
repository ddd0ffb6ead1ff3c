"""Holds or kills processes at the protocol's points, which `system.points` announces as audit events.

Where SLSHUDI_POINTS names a folder, a process looks there, at each point that it reaches, for a file of the point's
name. If the file says `die`, SIGKILL ends the Spark driver (JVM and Python). If it says `hold`, the first process to
come renames the file to `{point}.{pid}`, and waits until it is removed. A job whose driver is to stop gets a driver of
its own, unless SLSHUDI_POINTS_RESIDENT is set.

`tests/site/sitecustomize.py` brings this module into processes that have `armed_in` in their environment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

SITE = Path(__file__).with_name("site")
FOLDER = "SLSHUDI_POINTS"
RESIDENT = "SLSHUDI_POINTS_RESIDENT"
_POINT, _ASKED = "airflow_provider_slshudi.point", "airflow_provider_slshudi.resident"
_POLL_SECONDS = 0.02


def armed_in(folder: Path | str, *path: Path) -> dict[str, str]:
    """The variables of processes that stop at the points of a folder; `path`: more folders of modules."""
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    modules = dict.fromkeys([str(SITE), *map(str, path), *others])
    return {FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(modules)}


def stops_drivers(folder: Path) -> bool:
    """Whether a driver is to stop at a point: then it must be one that does no other job."""
    from airflow_provider_slshudi.system.points import Point, Where

    armed = {file.name for file in folder.glob("*")}
    return any(point.value in armed for point in Point if point.where is not Where.TASK)


def meet(armed: Path) -> None:
    """Dies or waits where the point is armed."""
    held = armed.with_name(f"{armed.name}.{os.getpid()}")
    try:
        armed.rename(held)  # only one process succeeds
        command = held.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    if command == "die":
        held.unlink()
        # spark-submit's JVM started this interpreter, and is the driver.
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    while held.exists():
        time.sleep(_POLL_SECONDS)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in (_POINT, _ASKED):
        return
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    if event == _POINT:
        meet(Path(folder) / str(arguments[0]))
    elif RESIDENT not in os.environ and stops_drivers(Path(folder)):
        raise ConnectionRefusedError("a driver is to stop at a point")


sys.addaudithook(_hear)
