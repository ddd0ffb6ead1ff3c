"""Found by every interpreter of a test's processes, Spark's included: brings `tests/points.py`, changes modules.

WORLDS_PLANT names replacements, `module:attribute=module:function ...`: the function is given what is there and gives
what takes its place. WORLDS_CLOCK is how many seconds Python's clock is ahead. WORLDS_SLEPT is a file that holds for
how many seconds the machine was asleep, which no clock but the boot's counts; timers that count none never end.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from typing_extensions import Self


def _there(module: Any, attribute: str) -> tuple[Any, str]:
    *path, name = attribute.split(".")
    for part in path:
        module = getattr(module, part)
    return module, name


def plant(module: ModuleType, attribute: str, replacement: str) -> None:
    """Puts a replacement in a module's place; what is not there to be replaced is an error."""
    owner, name = _there(module, attribute)
    where, _, function = replacement.partition(":")
    setattr(owner, name, getattr(importlib.import_module(where), function)(getattr(owner, name)))


def _then(spec: ModuleSpec | None, change: Callable[[ModuleType], None]) -> ModuleSpec:
    """The same, whose module is changed as soon as it has been executed."""
    assert spec is not None and spec.loader is not None
    load = spec.loader.exec_module

    def execute(module: ModuleType) -> None:
        load(module)
        change(module)

    spec.loader.exec_module = execute  # type: ignore[method-assign]
    return spec


class _Planting(importlib.abc.MetaPathFinder):
    def __init__(self, wanted: dict[str, list[tuple[str, str]]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        wanted = self._wanted.pop(name, None)
        if wanted is None:
            return None

        def change(module: ModuleType) -> None:
            for attribute, replacement in wanted:
                plant(module, attribute, replacement)

        return _then(importlib.util.find_spec(name), change)


def _move_clock(seconds: int) -> None:
    import datetime
    import time

    true = time.time, time.time_ns
    time.time = lambda: true[0]() + seconds
    time.time_ns = lambda: true[1]() + seconds * 10**9

    class _Moved(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

    class _Moving(importlib.abc.MetaPathFinder):
        """Of the package's modules alone: what is compiled against the class breaks where it is another one."""

        within = False

        def find_spec(
            self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if self.within or not name.startswith("airflow_provider_slshudi."):
                return None
            self.within = True
            try:
                spec = importlib.util.find_spec(name)
            finally:
                self.within = False

            def change(module: Any) -> None:
                if vars(module).get("datetime") is datetime.datetime:
                    module.datetime = _Moved

            return _then(spec, change)

    sys.meta_path.insert(0, _Moving())


def _sleep_at(file: Path) -> None:
    import signal
    import threading
    import time

    monotonic, set_timer, timer = time.monotonic, signal.setitimer, threading.Timer.__init__

    def slept() -> float:
        try:
            return float(file.read_text())
        except (OSError, ValueError):
            return 0.0

    def made(self: threading.Timer, interval: float, *more: Any, **named: Any) -> None:
        timer(self, interval + 3600, *more, **named)

    time.monotonic = lambda: monotonic() - slept()
    signal.setitimer = lambda which, seconds, *more: set_timer(which, seconds and seconds + 3600, *more)
    threading.Timer.__init__ = made  # type: ignore[method-assign]


_points = importlib.util.spec_from_file_location("slshudi_test_points", Path(__file__).parents[1] / "points.py")
assert _points is not None and _points.loader is not None
_points.loader.exec_module(importlib.util.module_from_spec(_points))
if os.environ.get("WORLDS_PLANT"):
    _wanted: dict[str, list[tuple[str, str]]] = {}
    for _item in os.environ["WORLDS_PLANT"].split():
        _place, _, _by = _item.partition("=")
        _module, _, _attribute = _place.partition(":")
        _wanted.setdefault(_module, []).append((_attribute, _by))
    sys.meta_path.insert(0, _Planting(_wanted))
if os.environ.get("WORLDS_CLOCK"):
    _move_clock(int(os.environ["WORLDS_CLOCK"]))
if os.environ.get("WORLDS_SLEPT"):
    _sleep_at(Path(os.environ["WORLDS_SLEPT"]))
