"""What process lists showed while everything ran."""

from __future__ import annotations

import re
import threading
from types import TracebackType

import psutil

OF_EXECUTORS = re.compile(
    r"CoarseGrainedExecutorBackend|-m airflow_provider_slshudi\.spark\.driver\.daemon|job/resident\.py"
)
"""Processes whose environment must hold no key of the log service and no password of a ledger: executors, their Python
workers, and the process that stays. A driver of its own has the key there."""
_PAUSE_SECONDS = 0.3


class Watch:
    """Command lines of all processes, and the environments of executors, again and again until its block ends."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self.environments: dict[str, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            for process in psutil.process_iter():
                try:
                    line = " ".join(process.cmdline())
                    if line in self.lines:
                        continue
                    self.lines.add(line)
                    if OF_EXECUTORS.search(line):
                        kept = process.environ().items()
                        self.environments[line] = "\n".join(f"{name}={value}" for name, value in kept)
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
