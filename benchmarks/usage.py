"""CPU seconds and memory of all processes below this one, by what they are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

KINDS = {
    "airflow worker": "tasks",
    "LocalExecutor": "tasks",
    "airflow task": "tasks",
    "airflow supervisor": "tasks",
    "airflow scheduler": "scheduler",
    "dag-processor": "DAG processor",
    "DagFileProcessor": "DAG processor",
    "api-server": "API server",
    "api_server": "API server",
    "triggerer": "triggerer",
    "driver/resident_driver.py": "resident process",
    "driver.daemon": "resident process",
}
"""What a process is, by a part of its command line; in this order. What is none of these is what started it."""
OTHER = "other"
JVM = ", JVM"
_kinds: dict[psutil.Process, str] = {}
"""What each process was when it was last seen."""


def used(leave_out: int) -> Counter[str]:
    """CPU seconds until now by kind, with those of processes that have ended and were waited for by their parents.

    `leave_out` is the process id of who is no part of it, with all below it.
    """
    found = Counter[str]()
    for process, kind in _below(psutil.Process(), OTHER, leave_out):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


def memory(leave_out: int) -> Counter[str]:
    """MB by kind; pages that several processes share count in parts (PSS). `leave_out` as for `used`."""
    found = Counter[str]()
    for process, kind in _below(psutil.Process(), OTHER, leave_out):
        with suppress(psutil.Error):
            found[kind] += process.memory_full_info().pss / 1e6
    return found


def thirds(sizes: Sequence[float]) -> tuple[float, float]:
    """The means of the first third and of the last, which tell whether something grows."""
    third = max(1, len(sizes) // 3)
    return sum(sizes[:third]) / third, sum(sizes[-third:]) / third


def _below(process: psutil.Process, inherited: str, leave_out: int) -> Iterator[tuple[psutil.Process, str]]:
    """All processes below one, each with its kind; those that end meanwhile are left out."""
    try:
        children = process.children()
    except psutil.NoSuchProcess:
        return
    for child in children:
        if child.pid == leave_out:
            continue
        try:
            words = " ".join(child.cmdline())
        except psutil.ZombieProcess:
            words = ""
        except psutil.Error:
            continue
        kind = next((kind for part, kind in KINDS.items() if part in words), inherited)
        kind = f"{kind}{JVM}" if "/java" in words.partition(" ")[0] and JVM not in kind else kind
        # One that is about to end, or has ended, has no words.
        if words:
            _kinds[child] = kind
        kind = _kinds.get(child, kind)
        yield child, kind
        yield from _below(child, kind, leave_out)


class Idle:
    """What the processes take while nothing happens, by kind and second; take it off a span's."""

    def __init__(self, leave_out: int, seconds: float) -> None:
        before, began = used(leave_out), time.monotonic()
        time.sleep(seconds)
        spent, span = used(leave_out), time.monotonic() - began
        spent.subtract(before)
        self.rates = {kind: cpu / span for kind, cpu in spent.items()}

    def off(self, spent: Counter[str], seconds: float) -> dict[str, float]:
        """What is left of `spent` over so many seconds."""
        return {kind: cpu - self.rates.get(kind, 0.0) * seconds for kind, cpu in spent.items()}
