"""What one run alone should do for a transaction, kept in the ledger."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from airflow_provider_slshudi.protocol.dangling import Ended
from airflow_provider_slshudi.protocol.work import Run, Work


def claims(work: Work, transaction: str, what: str, longest: timedelta, ended: Ended, airflow: str = "") -> bool:
    """Whether this run is the one: the first that claimed it, or the next once that one is over, or after `longest`.

    `airflow` is the name of the Airflow whose runs claim it, if that is known.
    """
    me = str(work.run)
    claim = partial(work.ledger.claim, work.pipeline.name, transaction, what, me, longest)
    holder = claim()
    if holder != me:
        dag_id, _, run_id = holder.partition("/")
        if ended(Run(dag_id, run_id, airflow)):
            holder = claim(instead=holder)
    return holder == me
