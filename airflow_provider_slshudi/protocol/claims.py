"""What one run alone should do for a transaction, kept in the ledger."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from airflow_provider_slshudi.protocol.dangling import Ended
from airflow_provider_slshudi.protocol.work import Run, Work


def claimant(run: Run) -> str:
    """The run's name among the runs of all Airflows that share the ledger: `AIRFLOW|DAG/RUN`."""
    return f"{run.airflow}|{run}"


def claims(work: Work, transaction: str, what: str, longest: timedelta, ended: Ended, airflow: str = "") -> bool:
    """Whether this run is the one: the first that claimed it, or the next once that one is over, or after `longest`.

    `airflow` is the name of the Airflow whose runs claim it, if that is known.

    Args:
        work: the pipeline's.
        transaction: its id.
        what: the act that is claimed.
        longest: after it another run may claim the act.
        ended: tells whether a run has ended.
        airflow: see above.
    """
    me = claimant(work.run)
    claim = partial(work.ledger.claim, work.pipeline.name, transaction, what, me, longest)
    holder = claim()
    if holder != me:
        named, _, run = holder.partition("|")
        dag_id, _, run_id = run.partition("/")
        if ended(Run(dag_id, run_id, named or airflow)):
            holder = claim(instead=holder)
    return holder == me
