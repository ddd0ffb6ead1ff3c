"""Looks whether there is something to do for a pipeline, at a fraction of what a run of it costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from airflow_provider_slshudi.ledger.states import State
from airflow_provider_slshudi.protocol import plan
from airflow_provider_slshudi.protocol.dangling import Ended
from airflow_provider_slshudi.protocol.settle import require_turn
from airflow_provider_slshudi.protocol.work import Run, Work

_NOT_KNOWN = float("inf")
_NEXT = "next batch by"
"""What a run of a fleet claims at the newest batch, so that no other starts a task for the same logs meanwhile."""
_CLAIM = timedelta(minutes=5)


@dataclass(frozen=True, order=True)
class News:
    """What a run of the pipeline has to do; the more urgent is the smaller one.

    Attributes:
        expires: when the service drops the oldest unread log (unix seconds); infinite where that is not known.
        since: when that log came (unix seconds); infinite where that is not known.
    """

    expires: float = _NOT_KNOWN
    since: float = _NOT_KNOWN


LEFT = News(0.0, 0.0)
"""A batch that an earlier run left: whatever is new waits for its decision."""


def news(work: Work, ended: Ended) -> News | None:
    """What there is to do; None where there is nothing, or another run of this DAG found the same and is not over.

    Keeps what it saw of the service, and that this run found it; changes nothing else.

    Raises:
        TailUnderWay: another run of this DAG works on the pipeline's batch.
        SlsHudiError: the service or the ledger refuses, or does not answer.
    """
    require_turn(work)
    name, ledger = work.pipeline.name, work.ledger
    if ledger.live(name):
        return LEFT
    if not plan.has_news(work) or not _is_ours(work, ended):
        return None
    last, kept = next(iter(ledger.sightings(name, 1)), None), ledger.retention_seen(name)
    if last is None or last.unread_since is None:
        return News()
    since = float(last.unread_since)
    return News(since + kept.kept if kept is not None and kept.kept is not None else _NOT_KNOWN, since)


def _is_ours(work: Work, ended: Ended) -> bool:
    name, me = work.pipeline.name, str(work.run)
    newest = next(iter(work.ledger.last(name, 1, State.COMMITTED)), None)
    if newest is None:
        return True
    claim = partial(work.ledger.claim, name, newest.id, _NEXT, me, _CLAIM)
    holder = claim()
    if holder != me:
        dag_id, _, run_id = holder.partition("/")
        if ended(Run(dag_id, run_id)):
            holder = claim(instead=holder)
    return holder == me
