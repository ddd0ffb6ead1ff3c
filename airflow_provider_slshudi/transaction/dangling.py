"""Transactions whose run may have ended: which dangle, whom they keep waiting, and which acts a run reserved."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import takewhile
from typing import Protocol, runtime_checkable

from airflow_provider_slshudi.exceptions import BatchUnderWay, LeaseHeld, TransientError
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import LIVE, SILENT_AFTER, Transaction
from airflow_provider_slshudi.system.processes import is_gone, is_here
from airflow_provider_slshudi.transaction.context import GIVEN_UP, Run, Work, run_of

QUIET_AFTER = timedelta(seconds=30)
"""Without a heartbeat for this long no process is at work: a step beats every ten seconds. Airflow's own retries of a
step begin sooner, as our DAGs set them."""
AGAIN_AFTER = timedelta(minutes=3)
"""How long a step elsewhere may still beat after a look that found it silent: longer than a beat waits for a ledger
that does not answer, and the pause before the next one."""
SILENT = "silent"
"""The event of such a look; its detail is the heartbeat that it saw."""
WITHOUT_A_BEAT = timedelta(minutes=1)
"""How long a step's task may take from when Airflow gives it to a worker to its first beat, and from its last one until
Airflow knows that it is over, after a look that found no beat for QUIET_AFTER: it imports a DAG, which takes seconds,
and on a machine with ten times its work not a minute."""
UNHEARD = "unheard"
"""The event of such a look; its detail is the last heartbeat, and the step and state that Airflow showed."""
_STEPS = ("plan", "open", "append", "record", "commit")
GONE = "its process is gone: "
"""What begins the reason of those whose process has died; its name follows."""
Ended = Callable[[Run], bool | None]
"""Whether a DAG run has ended; None where that cannot be known."""


@runtime_checkable
class ShowsSteps(Protocol):
    """An `Ended` that tells of a run's tasks, too."""

    def shown_step(self, run: Run, steps: Collection[str]) -> str:
        """The one of these steps whose task a worker has, and the task's state; empty where none is known."""


def shown_step(ended: Ended, run: Run, steps: Collection[str] = _STEPS) -> str:
    """The step of a run whose task a worker has, and the task's state; empty where nothing is known of tasks."""
    return ended.shown_step(run, steps) if isinstance(ended, ShowsSteps) else ""


def is_quiet(ledger: Ledger, transaction: Transaction) -> bool:
    """Whether no process that works on the transaction was heard of lately."""
    return quiet_in(ledger, transaction) < timedelta()


def quiet_in(ledger: Ledger, transaction: Transaction) -> timedelta:
    """How long until a transaction is quiet, unless a process is heard of before; negative once it is.

    Of a heartbeat that is yet to come, since the ledger's clock was set back, as long as of one of now.
    """
    return QUIET_AFTER - max(ledger.now() - transaction.heartbeat, timedelta())


def is_to_come(silent: timedelta) -> bool:
    """Whether the last heartbeat is one of later, since the ledger's clock was set back. Two looks judge it, then: a
    step that lives beats between them."""
    return silent < -QUIET_AFTER


def abandoned(ledger: Ledger, transaction: Transaction, ended: Ended) -> str:
    """Why no process works on a live transaction any more; empty where one may.

    A transaction whose process has died dangles also while its run goes on for Airflow, which notices much later.
    """
    process, silent = transaction.process or "", ledger.now() - transaction.heartbeat
    to_come = is_to_come(silent)
    if is_gone(process) and (silent > QUIET_AFTER or (to_come and _stays_silent(ledger, transaction))):
        return f"{GONE}{process}"
    given_up = (event.at for event in ledger.events(transaction.id) if event.what == GIVEN_UP)
    if any(moment >= transaction.heartbeat for moment in given_up):
        return "its task failed"
    over = ended(run_of(ledger, transaction))
    if over:
        return "its run has ended"
    if over is False and not process and silent > QUIET_AFTER and _has_lost_its_worker(ledger, transaction, ended):
        return f"a worker has the task of its step, which was not heard of since {transaction.heartbeat}"
    if silent <= SILENT_AFTER and not to_come:
        return ""
    # Between two steps it is Airflow that knows; and what lives here is never taken for dead.
    if is_here(process) if process else over is not None:
        return ""
    if (process or to_come) and not _stays_silent(ledger, transaction):
        return ""
    who = "its step runs elsewhere" if process else "its run is not known"
    return f"{who}, and its last heartbeat was at {transaction.heartbeat}"


def _has_lost_its_worker(ledger: Ledger, transaction: Transaction, ended: Ended) -> bool:
    """Whether a worker that Airflow believes to be at a step has not beaten for longer than a task begins or ends.

    It was killed before the step's first beat or after its last one: no process is named, and Airflow notices after
    five minutes, or never. A dead one leaves its task as it is: where Airflow showed another step, another state or no
    worker meanwhile, a task began that has its own time.
    """
    shown, now = shown_step(ended, run_of(ledger, transaction)), ledger.now()
    detail = f"{transaction.heartbeat} {shown or 'with no worker'}"
    looks = [event for event in ledger.events(transaction.id) if event.what == UNHEARD]
    alike = takewhile(lambda look: look.detail == detail, reversed(looks))
    past = [look.at for look in alike if look.at <= now]
    if not past and (shown or looks):
        ledger.note(transaction.id, UNHEARD, detail)
    return bool(shown and past) and now - min(past) > WITHOUT_A_BEAT


def _stays_silent(ledger: Ledger, transaction: Transaction) -> bool:
    """Whether no process has beaten for AGAIN_AFTER since a first look saw how long the transaction is silent.

    After an outage of the ledger, or once its clock was set ahead, every step is silent until its next beat.
    """
    # Not by their times alone: another server's clock, or one that was set, may be ahead of this heartbeat.
    now, heartbeat = ledger.now(), str(transaction.heartbeat)
    looks = [event for event in ledger.events(transaction.id) if (event.what, event.detail) == (SILENT, heartbeat)]
    past = [event.at for event in looks if event.at <= now]
    if not past:
        ledger.note(transaction.id, SILENT, heartbeat)
        return False
    return now - min(past) > AGAIN_AFTER


def claimant(run: Run) -> str:
    """The run's name among the runs of all Airflows that share the ledger: `AIRFLOW|DAG/RUN`."""
    return f"{run.airflow}|{run}"


def reserve_act(work: Work, transaction: str, what: str, longest: timedelta, ended: Ended, airflow: str = "") -> bool:
    """Whether this run is the one: the first that reserved it, or the next once that one is over, or after `longest`.

    `airflow` is the name of the Airflow whose runs reserve it, if that is known.

    Args:
        work: the pipeline's.
        transaction: its id.
        what: the act that is reserved.
        longest: after it another run may reserve the act.
        ended: tells whether a run has ended.
        airflow: see above.
    """
    me = claimant(work.run)
    reserve = partial(work.ledger.reserve_act, work.pipeline.name, transaction, what, me, longest)
    holder = reserve()
    if holder != me:
        named, _, run = holder.partition("|")
        dag_id, _, run_id = run.partition("/")
        if ended(Run(dag_id, run_id, named or airflow)):
            holder = reserve(instead=holder)
    return holder == me


@dataclass(frozen=True)
class Awaited:
    """Plain values, which survive the process that waits. Nothing is set where only another settle can tell.

    Attributes:
        pipeline: its name in the ledger.
        transaction: of the batch that has to be decided first; empty where none has.
        active: a run works on that batch; once none does, another settle may decide it, or go on beside it.
        lease: whether the pipeline's lease has to be free first.
    """

    pipeline: str = ""
    transaction: str = ""
    active: bool = False
    lease: bool = False


def awaited(error: TransientError) -> Awaited:
    """What a settle that ended with this error waits for."""
    if isinstance(error, LeaseHeld):
        return Awaited(error.pipeline, lease=True)
    if isinstance(error, BatchUnderWay):
        return Awaited(error.pipeline, str(error.transaction), error.active)
    return Awaited()


def is_over(ledger: Ledger, what: Awaited, ended: Ended) -> bool:
    """Whether a settle that waits for this should look again.

    Says nothing of processes: the machine that looks here may know more of them than the one that settles, which would
    then be woken for nothing again and again.
    """
    if what.lease:
        return ledger.lease_is_free(what.pipeline)
    if not what.transaction:
        return False
    transaction = ledger.find(what.transaction)
    if transaction is None:
        return False
    if transaction.state not in LIVE:
        return True
    return what.active and (is_quiet(ledger, transaction) or ended(run_of(ledger, transaction)) is True)
