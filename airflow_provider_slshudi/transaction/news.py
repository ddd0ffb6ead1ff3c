"""Looks whether there is something to do for a pipeline, at a fraction of what a run of it costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from airflow_provider_slshudi.exceptions import LeaseHeld, SlsHudiError, TransientError
from airflow_provider_slshudi.handover.names import STEPS
from airflow_provider_slshudi.ledger.records import State, Transaction, is_within
from airflow_provider_slshudi.sls.transport import answers, ask_each
from airflow_provider_slshudi.transaction import plan
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.dangling import Ended, claimant, reserve_act
from airflow_provider_slshudi.transaction.settle import dangling_transactions, require_alone, require_turn

SETTLED_EACH = timedelta(hours=1)
"""So often a run looks at the table, too: what others did there, or a driver that died, is seen without new logs."""
_NOT_KNOWN = float("inf")
_NEXT = "next batch by"
"""What a run of a fleet reserves at the newest batch, so that no other starts a task for the same logs meanwhile."""
_RESERVED = timedelta(minutes=3)
_LEAST_SECONDS, _END_SECONDS, _ANSWER_SECONDS = 1.0, 0.1, 2.0
"""How often a wait for news asks for all ends, at most, and for one of them; and how long it waits for an answer."""


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
"""A batch that an earlier run left: all that is new waits for its decision."""


def news(work: Work, ended: Ended) -> News | None:
    """What there is to do; None where there is nothing, or another run of this DAG found the same and is not over.

    Keeps what it saw of the service, as a plan does, and that this run found it. A pipeline in trouble, and one whose
    table no run has looked at for `SETTLED_EACH`, has something to do.

    Raises:
        BatchUnderWay: another run of this DAG works on the pipeline's batch; or any other, where batches upsert.
        SlsHudiError: the service or the ledger refuses, or does not answer.
    """
    name, ledger = work.pipeline.name, work.ledger
    # Before its turn: a dead step's last heartbeat may be one of hours to come, where the ledger's clock was set back.
    if dangling_transactions(work, ended):
        return LEFT
    require_turn(work)
    require_alone(work)
    try:
        has_news = plan.has_news(work)
    except LeaseHeld:
        # Another run decides there at the moment.
        return None
    except TransientError:
        if _is_ours(work, ended):
            raise
        return None
    timeline = ledger.last_timeline(name)
    is_due = timeline is None or not is_within(timeline.at, SETTLED_EACH, ledger.now())
    troubles = [trouble for trouble in ledger.troubles(name) if trouble.dag_id == work.run.dag_id]
    # What a tail of that name left in other steps no task of a fleet ends.
    is_in_trouble = any(trouble.step in STEPS for trouble in troubles)
    if not (has_news or is_due or is_in_trouble) or not _is_ours(work, ended):
        return None
    last, retention = next(iter(ledger.backlog_samples(name, 1)), None), ledger.retention_seen(name)
    if last is None or last.unread_since is None:
        return News()
    stays = retention.kept if retention is not None and retention.kept is not None else plan.LEAST_RETENTION_SECONDS
    return News(float(last.unread_since + stays), float(last.unread_since))


def _is_ours(work: Work, ended: Ended) -> bool:
    newest = _newest(work)
    return newest is None or reserve_act(work, newest.id, _NEXT, _RESERVED, ended)


def _newest(work: Work) -> Transaction | None:
    """The batch at which the next one is reserved."""
    return next(iter(work.ledger.last(work.pipeline.name, 1, State.COMMITTED)), None)


def let_go(work: Work) -> None:
    """Ends what this run reserved: others may take the same logs, although it goes on with other pipelines."""
    newest = _newest(work)
    if newest is not None:
        work.ledger.reserve_act(work.pipeline.name, newest.id, _NEXT, "", timedelta.max, instead=claimant(work.run))


def await_news(works: Sequence[Work], seconds: float) -> None:
    """Waits until a shard has logs that no look has seen, or for so many seconds.

    Keeps nothing and holds no lease; asks for the shards' ends at most ten times a second. It does not see what else
    is news: look again before long. A pipeline that cannot be asked is left to the next look, which says why; one that
    does not answer holds up no other.
    """
    until = time.monotonic() + seconds
    watched = [_Watched(work) for work in works]
    pause = max(_LEAST_SECONDS, _END_SECONDS * sum(len(item.ends) for item in watched))
    while (seconds_left := until - time.monotonic()) > 0:
        # First the pipelines whose lease another run held at the last look.
        time.sleep(min(seconds_left, pause))
        answers(_Watched.ask, [item for item in watched if not item.is_asked], _ANSWER_SECONDS)
        if any(item.has_grown for item in watched):
            return


class _Watched:
    """The open shards of a logstore, and their ends as the last look kept them; none once they cannot be asked.

    Attributes:
        is_asked: the service has not answered yet.
        has_grown: a shard has another end.
    """

    def __init__(self, work: Work) -> None:
        self.is_asked = self.has_grown = False
        self.ends: dict[int, int | None] = {}
        with suppress(SlsHudiError):
            self._service, shards = work.connect(), work.ledger.shards(work.pipeline.name)
            self.ends = {shard.id: shard.end for shard in shards if shard.status == "readwrite"}

    def ask(self) -> None:
        """Asks the service."""
        self.is_asked = True
        try:
            ends = ask_each(self._service.end_if_there, self.ends) if self.ends else {}
            self.has_grown = any(end != self.ends[id_] for id_, end in ends.items())
        except SlsHudiError:
            self.ends = {}
        finally:
            self.is_asked = False
