"""What an error asks for: the one command, or the change of a file, that its message names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timezone

from sqlalchemy import select

from airflow_provider_slshudi.config.pipeline import Pipeline
from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.engine import open_engine
from airflow_provider_slshudi.transaction.context import LEASE_SECONDS
from tests.exact.outcome import Jammed
from tests.exact.step import Told
from tests.worlds.place import Line

AGAIN = "run again"
MOST_COMMANDS = 3
"""So many errors one after the other may be answered: a rebuild may ask for a recovery first."""


def skip_what_expired(line: Line) -> None:
    """Accepts the gap, as the message of DataExpired says."""
    made = line.pipeline.model_dump(mode="json")
    line.pipeline = Pipeline.model_validate({**made, "source": {**made["source"], "on_expired": "skip"}})


def wait_for_lease(line: Line) -> str | None:
    """Waits until the lease is over that the message names; asks for it to be broken where that takes too long."""
    engine = open_engine(line.url)
    with engine.connect() as connection:
        until = [row.expires for row in connection.execute(select(models.leases)) if row.expires is not None]
    engine.dispose()
    left = max((expires.timestamp() for expires in until), default=0.0) - time.time()
    if left > _LONGEST_LEASE_SECONDS:
        raise Jammed(f"the lease ends in {left:.0f} s, and none lasts so long")
    if left > MOST_WAIT_SECONDS:
        return "recover --break-lease"
    time.sleep(max(0.0, left))
    return None


def put_back(line: Line) -> None:
    """Puts the files back that were cut off, as the message of TimelineUnreadable says."""
    while line.backup:
        file, content = line.backup.popitem()
        file.write_bytes(content)


def drop_what_has_no_key(line: Line) -> None:
    """Leaves logs without a key out, as the message of KeyMissing says."""
    made = line.pipeline.model_dump(mode="json")
    made["table"]["upsert"]["missing_key"] = "drop"
    line.pipeline = Pipeline.model_validate(made)


def wait_for_clock(text: str) -> Callable[[Line], None]:
    """All commands here are given where the clock is right; then the time has to come that the message names."""
    found = _NEWEST.search(text)
    if found is None:
        raise Jammed(f"no time is named: {text[:400]}")
    newest = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)

    def wait(line: Line) -> None:
        left = newest.timestamp() + 1 - time.time()
        if left > MOST_WAIT_SECONDS:
            raise Jammed(f"the table's newest time is {left:.0f} s ahead")
        time.sleep(max(0.0, left))

    return wait


MOST_WAIT_SECONDS = 60.0
_LONGEST_LEASE_SECONDS = LEASE_SECONDS + 60
_NEWEST = re.compile(r"the newest time on its timeline is (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")

Command = str | Callable[[Line], str | None]

NAMED: dict[str, Command] = {
    "`slshudi abandon": "abandon",
    "`slshudi table rebuild-metadata": "table rebuild-metadata",
    "back from the storage's versions": put_back,
    "Restore the file, by the storage's versions": put_back,
    "`source.on_expired: skip`": skip_what_expired,
    "`table.upsert.missing_key: drop`": drop_what_has_no_key,
}
"""By what the message says, be it of the error itself or of the job in which it was raised."""

COMMANDS: dict[str, Command] = {
    "LedgerLost": "ledger rebuild",
    "LedgerAhead": "ledger rebuild",
    "LeaseHeld": wait_for_lease,
    **dict.fromkeys(
        (
            "SourceUnavailable",
            "SourceThrottled",
            "SourceCorrupt",
            "BatchUnderWay",
            "LedgerUnavailable",
            "Fenced",
            "RangeConflict",
            "TimelineUnreadable",
            "CommitStateUnknown",
            "ManifestError",
            "TableError",
            "JobFailed",
            # The file is put back, or corrected.
            "PipelineConflict",
            "ColumnMismatch",
            "TableMismatch",
            # All others work as the owner.
            "TableDenied",
            "JobDenied",
            "LedgerDenied",
        ),
        AGAIN,
    ),
}
"""By the error's type; what is not here asks for a person, and is a jam."""


def command_for(told: Told) -> Command:
    """What an error asks for.

    Raises:
        Jammed: for a person.
    """
    if told.error == "IllegalTransition":
        # Of a rebuild that found a live transaction; of a step it is the next run that goes on.
        return "recover the transaction" if "live" in told.text else AGAIN
    if _NEWEST.search(told.text):
        return wait_for_clock(told.text)
    if named := next((command for text, command in NAMED.items() if text in told.text), None):
        return named
    if told.error not in COMMANDS:
        raise Jammed(f"{told.error} names no command: {told.text[:400]}")
    return COMMANDS[told.error]
