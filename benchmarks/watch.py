"""A look at every process below this one, again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil


class Watch(threading.Thread):
    """Calls `look` with each process until it is left; a process that ends meanwhile raises psutil.NoSuchProcess there.

    `cpu` is what looking has cost, in CPU seconds of this very process.
    """

    def __init__(self, look: Callable[[psutil.Process], None], seconds: float) -> None:
        super().__init__(daemon=True)
        self.cpu = 0.0
        self._look, self._seconds = look, seconds
        self._left = threading.Event()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self.join()

    def run(self) -> None:
        """Looks."""
        while not self._left.wait(self._seconds):
            self._all()
            self.cpu = time.thread_time()

    def _all(self) -> None:
        for process in psutil.Process().children(recursive=True):
            try:
                self._look(process)
            except psutil.NoSuchProcess:
                continue
