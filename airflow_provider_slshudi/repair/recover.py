"""Recovery by hand: decides dangling transactions now, and tells why it leaves others alone."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_slshudi.exceptions import ConfigError, LeaseHeld
from airflow_provider_slshudi.ledger.lease import Holding
from airflow_provider_slshudi.ledger.records import SILENT_AFTER, Event
from airflow_provider_slshudi.system.processes import is_here
from airflow_provider_slshudi.transaction.context import Run, Work, run_of
from airflow_provider_slshudi.transaction.dangling import AGAIN_AFTER, Ended, is_to_come, shown_step
from airflow_provider_slshudi.transaction.decisions import Decision
from airflow_provider_slshudi.transaction.settle import Settled, register, settle

_log = logging.getLogger(__name__)
DECISION = "decision"
"""Name of a ledger event that holds a decision."""


@dataclass(frozen=True)
class Decided:
    """A decision with the states that ledger and timeline showed."""

    transaction: str
    at: datetime
    by: str
    ledger: str
    timeline: str
    instant: str | None
    decision: Decision
    why: str


@dataclass(frozen=True)
class Left:
    """A live transaction that was not decided, and why; `heartbeat` is when a process last worked on it (UTC)."""

    transaction: str
    state: str
    instant: str | None
    run: str
    heartbeat: datetime
    why: str


@dataclass(frozen=True)
class Recovered:
    """What a recovery did, and what it left alone."""

    settled: list[Settled]
    decisions: list[Decided]
    left: list[Left]


class _AndNamed:
    """What is known of runs, and that some have ended."""

    def __init__(self, ended: Ended, runs: Collection[Run]) -> None:
        self._ended, self._runs = ended, runs

    def __call__(self, run: Run) -> bool | None:
        return True if run in self._runs else self._ended(run)

    def shown_step(self, run: Run, steps: Collection[str]) -> str:
        return shown_step(self._ended, run, steps)


def recover(work: Work, ended: Ended, named: Sequence[str] = ()) -> Recovered:
    """Decides every dangling transaction, and the `named` ones also while their runs go on.

    A new fencing token stops the run that works on a named transaction.

    Raises:
        ConfigError: a named transaction is not a live one of this pipeline.
        LedgerAhead, LedgerLost, TableMismatch: a person has to look.
        TransientError: try again later.
    """
    runs = _runs(work, named)
    settled = settle(work, _AndNamed(ended, runs))
    new_decisions = [
        decision
        for id_, count in Counter(item.transaction for item in settled).items()
        for decision in decisions(work.ledger.events(id_))[-count:]
    ]
    now = work.ledger.now()
    live_transactions = [
        Left(
            live.id,
            live.state.value,
            live.instant,
            f"{live.dag_id}/{live.run_id}",
            live.heartbeat,
            _why_left(ended(run_of(work.ledger, live)), now - live.heartbeat, live.process or ""),
        )
        for live in work.ledger.live(work.pipeline.name)
    ]
    return Recovered(settled, new_decisions, live_transactions)


def break_leases(work: Work, reason: str) -> list[Holding]:
    """Ends the pipeline's leases for a reason that a person gives, unless a holder surely lives.

    The log and the history of every live transaction get the reason and what was known of each lease. A holder that
    lives after all finds out before it changes anything.

    Raises:
        LeaseHeld: a holder lives on this machine; nothing was done.
    """
    register(work)
    holdings = work.ledger.holdings(work.pipeline.name)
    for holding in holdings:
        if holding.lives:
            raise LeaseHeld(
                f"pipeline {holding.pipeline}: {holding.holder} has the lease, and its process lives on this machine "
                f"({holding.process}): end that, and the lease is free at once",
                pipeline=holding.pipeline,
                holder=holding.holder,
                expires=holding.expires,
            )
    broken = [holding for holding in holdings if work.ledger.break_lease(holding)]
    for holding in broken:
        detail = {name: value for name, value in asdict(holding).items() if name not in ("nonce", "lives")}
        _log.warning("pipeline %s: a lease is broken by %s (%s): %s", holding.pipeline, work.run, reason, detail)
        for transaction in work.ledger.live(work.pipeline.name):
            work.ledger.note(transaction.id, "lease broken", {"by": str(work.run), "reason": reason, **detail})
    return broken


def decisions(events: Sequence[Event]) -> list[Decided]:
    """The decisions among a transaction's events."""
    past_decisions = []
    for event in events:
        if event.what == DECISION:
            detail: dict[str, Any] = json.loads(event.detail)
            past_decisions.append(
                Decided(
                    event.transaction,
                    event.at,
                    detail["by"],
                    detail["ledger"],
                    detail["timeline"],
                    detail["instant"],
                    Decision(detail["decision"]),
                    detail["why"],
                )
            )
    return past_decisions


def _why_left(over: bool | None, silent: timedelta, process: str) -> str:
    lives_here = bool(process) and is_here(process)
    if over is False and (lives_here or not process):
        return "its run has not ended"
    if lives_here and silent > SILENT_AFTER:
        return "its process is on this machine and has not ended"
    to_come = is_to_come(silent)
    heard = "yet to come, since the ledger's clock was set back"
    if not to_come:
        heard = f"{max(0, int(silent.total_seconds()))} s old"
    then = f"only after {int(SILENT_AFTER.total_seconds())} s no process counts as working on it"
    if to_come or silent > SILENT_AFTER:
        then = f"a run that looks {int(AGAIN_AFTER.total_seconds())} s after a first look decides it"
    aged = f"its last heartbeat is {heard}; {then}"
    return f"its run has not ended, and its step runs elsewhere: {aged}" if over is False else aged


def _runs(work: Work, named: Sequence[str]) -> set[Run]:
    """The runs of named transactions; a run has one live transaction."""
    live = {item.id: run_of(work.ledger, item) for item in work.ledger.live(work.pipeline.name)}
    for id_ in named:
        if id_ not in live:
            raise ConfigError(
                f"transactions: {id_!r} does not wait for a decision in pipeline {work.pipeline.name}; these do: "
                f"{', '.join(live) or 'none'}",
                source="transactions",
                field="transactions",
                value=id_,
            )
    return {live[id_] for id_ in named}
