"""Whether settle ever takes the batch of a process that lives for a dead one's."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from airflow_provider_slshudi.ledger.records import Event
from airflow_provider_slshudi.ledger.transactions import TAKEN_OVER
from airflow_provider_slshudi.transaction.dangling import GONE
from tests.chaos.place import Place

_NEWEST = 12
_LOOK_SECONDS = 1.0


class Living:
    """Looks at each batch that was taken from a process right after it was: `dead` and `living` count the processes."""

    def __init__(self, place: Place) -> None:
        self.dead, self.living = 0, list[str]()
        self._place, self._seen = place, set[Event]()
        self._next = 0.0

    def look(self) -> None:
        """Looks, once a second at most."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        for line in self._place.lines:
            for batch in self._place.ledger.last(line.name, _NEWEST):
                if batch.token > 1:
                    for event in self._place.ledger.events(batch.id):
                        self._judge(batch.id, event)

    def _judge(self, batch: str, event: Event) -> None:
        if event.what != TAKEN_OVER or event in self._seen:
            return
        self._seen.add(event)
        why = str(json.loads(event.detail).get("why", ""))
        if not why.startswith(GONE):
            return
        if lives(why.removeprefix(GONE)):
            self.living.append(f"{batch} was taken from a process that lives: {why}")
        else:
            self.dead += 1


def lives(process: str) -> bool:
    """Whether a process of this machine, of a ledger's name, lives; asked of the kernel, not of the package."""
    _, pid, started = process.rsplit("/", 2)
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0] not in ("Z", "X") and fields[19] == started
    return False
