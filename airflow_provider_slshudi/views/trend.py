"""A pipeline over the last hours or days: how far behind, what came, what batches committed, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import BacklogSample, State
from airflow_provider_slshudi.views.history import BatchView

WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
"""What a page offers, by its name in an address."""
_MOST = 12_000
"""Batches of a window at most: more than one a minute for seven days."""

Points = Sequence[tuple[datetime, float]]
"""Values over time."""


@dataclass(frozen=True)
class Trend:
    """Values between `begin` and `end` (UTC).

    Attributes:
        lag: seconds, the age of the oldest unread log at each look at the service.
        came: raw bytes that came between two looks, estimated, at the later one.
        read: raw bytes of each committed batch, at its end.
        rows: likewise.
        failed: 1 for each aborted batch, at its end.
    """

    begin: datetime
    end: datetime
    lag: Points
    came: Points
    read: Points
    rows: Points
    failed: Points


def trend(ledger: Ledger, name: str, window: timedelta) -> Trend:
    """A pipeline's trend over the last `window`. Looks at the service are kept for 48 hours."""
    end = ledger.now()
    begin = end - window
    looks = [look for look in ledger.backlog_since(name, begin) if begin <= look.at <= end]
    batches = ledger.last(name, _MOST, since=begin)
    committed = [item for item in batches if item.state is State.COMMITTED]
    return Trend(
        begin,
        end,
        _lag(looks),
        [(look.at, float(look.came_bytes)) for look in looks if look.came_bytes is not None],
        [(item.changed, float(item.bytes)) for item in committed],
        [(item.changed, float(item.rows)) for item in committed],
        [(item.changed, 1.0) for item in batches if item.state is State.ABORTED],
    )


def _lag(looks: Iterable[BacklogSample]) -> Points:
    # Where something is unread and the service did not tell its age, there is no point.
    dated_looks = [look for look in looks if not look.unread or look.unread_since is not None]
    return [(look.at, look.at.timestamp() - look.unread_since if look.unread_since else 0.0) for look in dated_looks]


@dataclass(frozen=True)
class FreshnessTrend:
    """How old the oldest log of each batch was at its commit, and what was promised: seconds, at the commit's time."""

    fresh: Points
    promised: Points


def freshness_trend(batches: Iterable[BatchView]) -> FreshnessTrend:
    """Of those batches that tell."""
    dated = [(batch.transaction.changed, batch.fresh) for batch in batches if batch.fresh is not None]
    promised = [(moment, fresh.promised) for moment, fresh in dated if fresh.promised is not None]
    return FreshnessTrend([(moment, fresh.seconds) for moment, fresh in dated], promised)
