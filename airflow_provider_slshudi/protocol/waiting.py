"""What a settle that cannot go on waits for, as far as a look at the ledger tells when it is over."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_slshudi.exceptions import BatchUnderWay, LeaseHeld, TransientError
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.states import LIVE
from airflow_provider_slshudi.protocol.dangling import Ended, is_quiet
from airflow_provider_slshudi.protocol.work import run_of


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
    found = ledger.find(what.transaction)
    if found is None:
        return False
    if found.state not in LIVE:
        return True
    return what.active and (is_quiet(ledger, found) or ended(run_of(ledger, found)) is True)
