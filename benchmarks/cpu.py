"""CPU seconds of all processes below this one, by what they are."""

from __future__ import annotations

import time
from collections import Counter
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
    "job/resident.py": "resident process",
    "job.daemon": "resident process",
}
"""What a process is, by a part of its command line; in this order. What is none of these is what started it."""
OTHER = "other"


def used(leave_out: int) -> Counter[str]:
    """CPU seconds until now by kind, with those of processes that have ended and were waited for by their parents.

    `leave_out` is the process id of who is no part of it, with all below it.
    """
    found = Counter[str]()

    def add(process: psutil.Process, inherited: str) -> None:
        if process.pid == leave_out:
            return
        with suppress(psutil.NoSuchProcess):
            words, times, children = " ".join(process.cmdline()), process.cpu_times(), process.children()
            kind = next((kind for part, kind in KINDS.items() if part in words), inherited)
            kind = f"{kind}, JVM" if "/java" in words.partition(" ")[0] else kind
            found[kind] += times.user + times.system + times.children_user + times.children_system
            for child in children:
                add(child, kind)

    for child in psutil.Process().children():
        add(child, OTHER)
    return found


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
