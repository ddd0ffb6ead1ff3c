"""LocalExecutor's workers, found within milliseconds of when they take a task, and killed."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from tests.starts.cases import Victim

_TITLE = "airflow worker -- LocalExecutor: "
_LOOK_SECONDS = 0.004


class Workers:
    """Watches the scheduler's children; use it in a `with`."""

    def __init__(self, scheduler: int) -> None:
        self._children = Path(f"/proc/{scheduler}/task/{scheduler}/children")
        self._awaited: dict[str, float] = {}
        self._taken: dict[str, tuple[int, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Workers:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def taken(self, task: str, seconds: float) -> tuple[psutil.Process, float] | None:
        """The worker that takes a task, by its id, and when it did (monotonic); None if none does in time."""
        until = time.monotonic() + seconds
        self._awaited[task] = until
        while time.monotonic() < until:
            if task in self._taken:
                self._awaited.pop(task)
                pid, at = self._taken[task]
                return psutil.Process(pid), at
            time.sleep(_LOOK_SECONDS / 2)
        return None

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for pid in self._children.read_text().split() if self._awaited else ():
                task = task_of(int(pid))
                if task in self._awaited and task not in self._taken:
                    self._taken[task] = int(pid), time.monotonic()


def task_of(pid: int) -> str:
    """The id of the task that a worker supervises; empty of an idle worker, and of what is none."""
    with suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0 ")
        return title.removeprefix(_TITLE) if title.startswith(_TITLE) else ""
    return ""


def kill(victim: Victim, worker: psutil.Process, task: str) -> bool:
    """SIGKILL; False where the worker has another task by now, or its task's process has ended."""
    with suppress(psutil.NoSuchProcess):
        # It stands still meanwhile: an idle worker holds the queue's lock.
        worker.suspend()
        try:
            if task_of(worker.pid) != task:
                return False
            below = worker.children(recursive=True)
            if victim is Victim.TASK and not below:
                return False
            killed = {Victim.TASK: below[:1], Victim.WORKER: [worker], Victim.BOTH: [worker, *below]}[victim]
            for process in killed:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return True
        finally:
            with suppress(psutil.NoSuchProcess):
                worker.resume()
    return False
