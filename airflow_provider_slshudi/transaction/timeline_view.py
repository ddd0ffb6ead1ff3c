"""Keeps in the ledger what a step sees of the table, so that pages show it and read no storage (decision 0033).

All of it is for people: nothing depends on it, and nothing waits or fails for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow_provider_slshudi.exceptions import LedgerError, TableError
from airflow_provider_slshudi.hudi.instant_metadata import TRANSACTION_KEY, ranges_of
from airflow_provider_slshudi.hudi.layout import Phase
from airflow_provider_slshudi.hudi.timeline import Timeline
from airflow_provider_slshudi.ledger.records import SeenInstant, SeenTimeline, Transaction
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import InstantState

MOST = 100
"""So many of the newest completed instants are kept, and all that are pending."""
COMPLETED = "COMPLETED"
SAME_TRANSACTION, SAME_RANGES = "same_transaction", "same_ranges"
"""Items of the event COMMITTED: whether the commit's extra metadata has the ledger's transaction, and its ranges."""
_log = logging.getLogger(__name__)


def timeline(work: Work) -> Timeline:
    """The table's timeline, whose newest instants the ledger keeps; raises as `Work.timeline`."""
    now, table_timeline = _now(work), work.timeline()
    if now is not None:
        try:
            work.ledger.save_timeline(work.pipeline.name, summary(table_timeline, now, str(work.run)))
        except (LedgerError, TableError) as error:
            _log.warning("what the timeline shows is not kept: %s", error)
    return table_timeline


def summary(found: Timeline, at: datetime, run: str) -> SeenTimeline:
    """What is kept of a timeline that a run looked at."""
    completed = [instant for instant in found if instant.phase is Phase.COMPLETED]
    newest = completed[-MOST:]
    instants = {instant.time: SeenInstant(COMPLETED, instant.completion) for instant in newest}
    # A rollback or clean may have the time of a write.
    instants |= {instant.time: SeenInstant(instant.phase.name, None) for instant in found.pending()}
    instants |= {time: SeenInstant(InstantState.ROLLING_BACK.value, None) for time in found.rolling_back}
    return SeenTimeline(
        at, run, found.oldest, newest[0].time if len(newest) < len(completed) else found.oldest, instants
    )


def compared(work: Work, transaction: Transaction, found: Timeline, instant: str | None) -> Mapping[str, Any]:
    """Items of the event COMMITTED: what the commit says beside what the ledger says; nothing if that is not known.

    Args:
        work: the pipeline's.
        transaction: a committed one.
        found: the table's timeline.
        instant: the transaction's.
    """
    if instant is None:
        return {}
    try:
        extra = found.extra_of(instant) or {}
        read = {item.range: (item.rows, item.bytes, item.filtered) for item in work.ledger.totals(transaction.id)}
        ranges = {(item, *read.get(item, (None, None, 0))) for item in work.ledger.ranges(transaction.id)}
        same = set(ranges_of(extra)) == ranges
    except (LedgerError, TableError, KeyError, ValueError, TypeError) as error:
        _log.warning("transaction %s: its commit is not compared with the ledger: %r", transaction.id, error)
        return {}
    return {SAME_TRANSACTION: extra.get(TRANSACTION_KEY) == transaction.id, SAME_RANGES: same}


def _now(work: Work) -> datetime | None:
    try:
        return work.ledger.now()
    except LedgerError as error:
        _log.warning("what the timeline shows is not kept: %s", error)
        return None
