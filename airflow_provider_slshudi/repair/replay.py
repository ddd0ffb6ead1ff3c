"""Replays quarantined logs, and counts what is in the quarantine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_slshudi.exceptions import ReplayUnderWay
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.handover.findings import take_counts
from airflow_provider_slshudi.handover.job_order import Verb
from airflow_provider_slshudi.hudi.instant_metadata import COMMIT_ACTION
from airflow_provider_slshudi.hudi.timeline import COMMITS
from airflow_provider_slshudi.ledger.records import LIVE, Kind, Transaction
from airflow_provider_slshudi.system.points import Point, reach
from airflow_provider_slshudi.transaction import context, steps
from airflow_provider_slshudi.transaction.beside import TableBeside
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.evidence import require_agreement
from airflow_provider_slshudi.transaction.settle import register


@dataclass(frozen=True)
class Replayed:
    """What a replay did: how many logs it moved back, and how many selected ones do not fit, by column and reason."""

    transaction: str
    instant: str
    moved: int
    left: Mapping[str, int]


def replay(work: Work, selection: Selection) -> Replayed | None:
    """Moves quarantined logs that fit by now into the main table; None where the quarantine never had a log.

    Settle decides a replay that died half-way like any transaction; its logs are still where they were.

    Raises:
        ReplayUnderWay: another replay is not decided yet.
        LedgerAhead, LedgerLost, ForeignWrite, PipelineConflict: see `evidence.require_agreement`.
        TableMismatch: the quarantine was restored alone, so it may have logs that a replay moved before.
    """
    begun = plan(work)
    if begun is None:
        return None
    steps.open_instant(work, begun.id, begun.token, selection)
    steps.append(work, begun.id, begun.token)
    recorded = steps.record(work, begun.id, begun.token)
    steps.commit(work, begun.id, begun.token)
    facts: Mapping[str, Any] = recorded.manifest or {}
    return Replayed(begun.id, str(recorded.instant), facts["moved"], facts["left"])


def plan(work: Work) -> Transaction | None:
    """A replay, PLANNED; None where the quarantine never had a log. Raises as `replay`."""
    register(work)
    with work.lease():
        require_agreement(work)
        # Two replays at once could both move a log, or undo each other's removals when both rewrite a file.
        for other in work.ledger.replays(work.pipeline.name):
            if other.state in LIVE:
                raise ReplayUnderWay(
                    f"replay {other.id} of pipeline {work.pipeline.name} is {other.state.value}: wait for it, or where "
                    "it died, let `slshudi recover` decide it",
                    pipeline=work.pipeline.name,
                    transaction=other.id,
                )
        TableBeside(work).require_known()
        main = work.timeline()
        TableBeside(work).require_whole(
            (instant.time, main.extra_metadata(instant)) for instant in main.completed(*COMMITS)
        )
        if not TableBeside(work).timeline().completed(COMMIT_ACTION):
            return None
        reach(Point.PLAN_BEGINNING)
        name, run, requests = work.pipeline.name, work.run, {context.REQUESTS: 0}
        begun = work.ledger.begin(name, Kind.REPLAY, [], run.dag_id, run.run_id, requests, run.airflow)
        reach(Point.PLAN_BEGUN)
        return begun


def show(work: Work) -> list[dict[str, Any]]:
    """What is in the quarantine, per column, type and reason: `logs`, `first_time`, `last_time` (unix seconds)."""
    TableBeside(work).require_known()
    if not TableBeside(work).timeline().completed(COMMIT_ACTION):
        return []
    id_ = uuid.uuid4().hex
    work.launcher.run(Verb.COUNT_QUARANTINE, work.order(transaction=id_), {})
    return take_counts(work.storage, id_)
