"""What waits behind a pipeline's commits: partitions that become complete, and consumers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from airflow_provider_slshudi.doctor.finding import Check, Seen, ok, unknown, warning
from airflow_provider_slshudi.exceptions import SlsHudiError
from airflow_provider_slshudi.ledger.ledger import Ledger

_STANDS = timedelta(hours=1)
"""A watermark that is so far behind the newest look stands still, or is held up."""
_LOOKED = timedelta(days=1)
"""No look for so long: the pipeline is paused, or its plans fail."""


class Downstream:
    """The checks of what waits behind a pipeline's commits.

    Args:
        name: the pipeline's.
        ledger_of: gives the ledger, None before its first use; raises LookupError if it cannot be asked.
    """

    def __init__(self, name: str, ledger_of: Callable[[], Ledger | None]) -> None:
        self._name, self._ledger_of = name, ledger_of

    def checks(self, has_lateness: bool) -> list[Check]:
        """All checks; that of the watermark where the file declares a lateness."""
        consumers = Check("consumers", self.consumers)
        return [Check("watermark", self.watermark), consumers] if has_lateness else [consumers]

    def watermark(self) -> Seen:
        """Whether the time until which all is committed moves with the looks at the service."""
        return self._asked(self._watermark)

    def consumers(self) -> Seen:
        """Whether a consumer is near the end of the time for which cleaning and archival wait for it."""
        return self._asked(self._consumers)

    def _asked(self, look: Callable[[Ledger], Seen]) -> Seen:
        try:
            ledger = self._ledger_of()
            return ok("no batch has run yet") if ledger is None else look(ledger)
        except (LookupError, SlsHudiError) as error:
            return unknown(str(error))

    def _watermark(self, ledger: Ledger) -> Seen:
        mark, looked = ledger.progress(self._name)
        if looked is None:
            return unknown("no plan has looked at the service since `lateness` was declared")
        newest, slow = _time(looked), f"`slshudi lag {self._name}` tells which shard is behind"
        since_look = f"the newest look at the service was at {newest:%Y-%m-%d %H:%M} UTC"
        if mark is None:
            return warning(f"it is not known until when all is committed; {since_look}", slow)
        sentence = f"all is committed that the service received until {_time(mark):%Y-%m-%d %H:%M} UTC; {since_look}"
        if newest - _time(mark) > _STANDS:
            return warning(f"{sentence}. No partition that ended since is complete", slow)
        if ledger.now() - newest > _LOOKED:
            return warning(sentence, "see whether the pipeline's DAG is paused, or its plans fail")
        return ok(sentence)

    def _consumers(self, ledger: Ledger) -> Seen:
        late = [str(hold) for hold in ledger.holds(self._name) if hold.is_told]
        if late:
            mend = "look after its runs; cleaning may then delete what it lacks. `slshudi consumers forget` removes one"
            return warning("; ".join(late), mend)
        count = len(ledger.consumers(self._name))
        return ok(f"consumers: {count}; none is near the end of its hold" if count else "there is none")


def _time(unix_seconds: int) -> datetime:
    return datetime.fromtimestamp(unix_seconds, timezone.utc)
