"""A person gives up a batch that recovery cannot end, such as a prepared one whose commit always fails."""

from __future__ import annotations

from airflow_provider_slshudi.exceptions import ConfigError, IllegalTransition
from airflow_provider_slshudi.ledger.records import Transaction
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import cutoff
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.decisions import InstantState
from airflow_provider_slshudi.transaction.evidence import Evidence, look
from airflow_provider_slshudi.transaction.resolve import abort, roll_back

ABANDONED = "abandoned"
"""Name of the ledger event that says who gave up a transaction, and why."""

_COMPLETED = (InstantState.COMPLETED_OURS, InstantState.COMPLETED_FOREIGN)
_NOTHING_PENDING = (InstantState.NOTHING, InstantState.ROLLED_BACK)


def evidence(work: Work, id_: str) -> tuple[Transaction, Evidence]:
    """The live transaction, and what the table shows of it; changes nothing.

    Raises:
        ConfigError: the pipeline has no live transaction of this id.
        PipelineConflict: name, source or table in the pipeline's file differ from the ledger's.
        TimelineUnreadable: nothing is known.
    """
    pipeline = work.pipeline
    work.ledger.require(pipeline.name, pipeline.source.identity, pipeline.table.path)
    live = {transaction.id: transaction for transaction in work.ledger.live(pipeline.name)}
    if id_ not in live:
        raise ConfigError(
            f"transaction: pipeline {pipeline.name} has no live transaction {id_!r} to give up; its live ones: "
            f"{', '.join(live) or 'none'}",
            source="transaction",
            field="transaction",
            value=id_,
        )
    return live[id_], look(work, live[id_])


def abandon(work: Work, id_: str, reason: str) -> Evidence:
    """Gives up a live transaction: rolls its instant back, so that a later batch reads its ranges again.

    A new fencing token stops the run that works on it. Returns what the table showed before; raises as `evidence`.

    Raises:
        IllegalTransition: the table has the transaction's commit.
        LeaseHeld: the transaction is as it was; try again.
        JobFailed, TableError: try again, or leave it to the next settle, which ends an unfinished rollback.
    """
    with work.lease() as lease:
        cutoff.take_away(work)
        transaction, table_evidence = evidence(work, id_)
        if table_evidence.state in _COMPLETED:
            raise IllegalTransition(
                f"transaction {id_} is {transaction.state.value} in the ledger, but its instant "
                f"{table_evidence.instant} is {table_evidence.state.value} on {work.storage.uri}: a completed batch "
                f"cannot be given up. Run `slshudi recover {transaction.pipeline} --transaction {id_}`",
                transaction=id_,
                found=table_evidence.state.value,
                wanted="an instant that is not completed",
            )
        taken = work.ledger.take_over(id_)
        detail = {"by": str(work.run), "why": reason, "ledger": transaction.state.value}
        work.ledger.note(
            id_, ABANDONED, {**detail, "timeline": table_evidence.state.value, "instant": table_evidence.instant}
        )
        reach(Point.SETTLE_TAKEN_OVER)
        is_pending = table_evidence.state not in _NOTHING_PENDING
        if is_pending:
            roll_back(work, lease, str(table_evidence.instant), id_, taken.token)
        abort(work, taken, lease, table_evidence, f"given up by {work.run}: {reason}", is_rolled_back=is_pending)
    return table_evidence
