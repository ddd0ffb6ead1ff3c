"""What a transaction costs, as its events tell: the plan's requests, the CPU seconds of drivers.

The append's own figures are in its manifest (`notes.handover.Spent`). All of it is for people: nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_slshudi.protocol.work import Work
from airflow_provider_slshudi.sls.service import LogService

REQUESTS = "requests"
"""Item of the event PLANNED: how many requests the plan sent to the log service."""
CPU = "cpu"
"""Item of the events OPEN and COMMITTED: the CPU seconds of the driver that opened or committed."""


def counting(work: Work) -> tuple[Work, Callable[[], int]]:
    """The same work, and a function that tells how many requests were sent through it so far."""
    made: list[LogService] = []

    def connect() -> LogService:
        made.append(work.connect())
        return made[-1]

    return replace(work, connect=connect), lambda: sum(service.requests for service in made)


def of_driver(seconds: float | None) -> Mapping[str, Any]:
    """A driver's CPU seconds as an item of an event; nothing where they are not known."""
    return {} if seconds is None else {CPU: round(seconds, 3)}
