"""What planted bugs put in the place of the package's own: each takes what is there and gives what replaces it.

Modules of the package are imported within the functions: this one is imported while those are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

Function = Callable[..., Any]


def nothing(original: Function) -> Function:
    """Does nothing, and gives None."""
    return lambda *arguments, **named: None


def no_variables(original: Function) -> Function:
    """No variable of the environment."""
    return lambda: {}


def no_options(original: tuple[str, ...]) -> tuple[str, ...]:
    """No option of a JVM."""
    return ()


def no_lease(original: Function) -> Function:
    """A lease that everybody gets."""

    class Free:
        expires = None

        def renew(self) -> None:
            """Nothing to renew."""

        def extend(self, seconds: float) -> None:
            """Nothing to extend."""

    @contextmanager
    def lease(*arguments: Any, **named: Any) -> Iterator[Free]:
        yield Free()

    return lease


def forever(original: Function) -> Function:
    """An hour, whatever there is to do."""
    return lambda *arguments, **named: 3600.0


def monotonic(original: Function) -> Function:
    """A clock that does not count sleep."""
    return lambda: time.monotonic()


def own_zone(original: Function) -> Function:
    """A table's times in the zone of whoever writes it, compared with none."""

    @contextmanager
    def rising(gateway: Any, tables: Any) -> Iterator[bool]:
        zones = gateway.jvm.java.util.TimeZone
        before = zones.getDefault()
        # TZ is UTC in every driver.
        zones.setDefault(zones.getTimeZone(os.environ.get("WORLDS_ZONE") or "UTC"))
        common = gateway.hudi.common
        common.table.timeline.HoodieInstantTimeGenerator.setCommitTimeZone(common.model.HoodieTimelineTimeZone.LOCAL)
        try:
            yield False
        finally:
            zones.setDefault(before)

    return rising


def any_expiry(original: Function) -> Function:
    """A lease's end believed, however far ahead it is."""
    from airflow_provider_slshudi.system.processes import is_gone

    def over(found: Any, at: Any) -> str:
        why: str = original(found, at)
        return ("its process is gone" if is_gone(found.process or "") else "") if why.startswith("it ends") else why

    return over


def renamed_marker(original: Function) -> Function:
    """A marker that has another name in the same folder until it is whole."""
    from airflow_provider_slshudi.system.points import Point, reach

    def mark(storage: Any, instant: str, path: str, still_wanted: Callable[[], None], kind: str = "CREATE") -> None:
        marker = f".hoodie/.temp/{instant}/{path}.marker.{kind}"
        half = f"{marker}.{uuid4().hex}.tmp"
        with storage.create(half):
            reach(Point.APPEND_TASK_MARKING)
        storage.delete(half)
        original(storage, instant, path, still_wanted, kind)

    return mark


def bare_timeline(original: Function) -> Function:
    """A timeline that is empty where there is no table."""
    from airflow_provider_slshudi.hudi.timeline import Timeline

    return lambda work: Timeline.load(work.storage)


def always(original: Function) -> Function:
    """An answer that is always yes."""
    return lambda *arguments, **named: True


def empty(original: Function) -> Function:
    """A list without anything in it."""
    return lambda *arguments, **named: []
