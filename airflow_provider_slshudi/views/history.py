"""What a pipeline's batches did: steps and their seconds, rows, bytes, files, values that did not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from airflow_provider_slshudi.handover.batch_files import QUARANTINE
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Event, Past, RangeTotals, State, Transaction
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.repair.recover import DECISION, Decided, decisions
from airflow_provider_slshudi.views.cost import Cost, cost_of
from airflow_provider_slshudi.views.freshness import Freshness, freshness_of
from airflow_provider_slshudi.views.sides import Sides, sides_of
from airflow_provider_slshudi.views.words import Text, items, span

_STEPS = {State.PLANNED.value: "open", State.OPEN.value: "append and record", State.PREPARED.value: "commit"}
"""What a transaction goes through after each state."""


@dataclass(frozen=True)
class StepTime:
    """The time between two states of a transaction; `name` says what happens in it, `parts` how it was spent."""

    name: str
    begin: datetime
    end: datetime
    parts: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True)
class BatchView:
    """One transaction at a glance; `files` and `stored` (bytes of its files) are None before it is recorded.

    Attributes:
        unfit: logs that did not fit their columns.
        decided: how often a recovery decided it; the commit of a healthy run does not count.
        fresh: None of what is no committed batch of the tail.
        filtered: logs that the pipeline's condition left out; None where it had none.
    """

    transaction: Transaction
    steps: list[StepTime]
    files: int | None
    stored: int | None
    unfit: int
    decided: int
    cost: Cost
    fresh: Freshness | None
    filtered: int | None

    @property
    def seconds(self) -> float:
        """From its plan to its end, or to its last change."""
        return (self.transaction.changed - self.transaction.created).total_seconds()


@dataclass(frozen=True)
class Misfits:
    """Values that did not fit, of some batches together: count by column, and examples as text."""

    logs: int
    rows: int
    columns: Mapping[str, int]
    examples: list[str]


@dataclass(frozen=True)
class TransactionView:
    """All that the ledger has of a transaction; `totals` by range, without ranges that were not read (yet).

    `tables` are the rows of each table by its key, where the pipeline has routes.
    """

    batch: BatchView
    sides: Sides
    ranges: list[Range]
    totals: Mapping[Range, RangeTotals]
    events: list[tuple[Event, str]]
    decisions: list[Decided]
    facts: Mapping[str, Any]
    tables: Mapping[str, int]


MAIN = "main"


def tables_of(transaction: Transaction) -> dict[str, int]:
    """The rows that a batch wrote into each table, MAIN, QUARANTINE or a route's key; empty without routes."""
    facts = transaction.manifest or {}
    routed: Mapping[str, int] = facts.get("routed") or {}
    if not routed:
        return {}
    aside = int(facts.get("quarantined") or 0)
    all_rows = int(facts["moved"]) if "moved" in facts else transaction.rows - aside
    return {MAIN: all_rows - sum(routed.values()), **routed, **({QUARANTINE: aside} if aside else {})}


def batches(past: Iterable[Past]) -> list[BatchView]:
    """The transactions at a glance."""
    return [_batch(item.transaction, item.events) for item in past]


def misfits(past: Sequence[Past], examples: int = 5) -> Misfits:
    """The values of these transactions that did not fit; of the newest ones some examples."""
    columns: dict[str, int] = {}
    shown: list[str] = []
    logs = rows = 0
    now = datetime.now(timezone.utc)
    for item in past:
        facts = item.transaction.manifest or {}
        logs += int(facts.get("unfit") or 0)
        rows += item.transaction.rows
        until = item.transaction.values_until
        if until is None or until > now:
            shown += [str(example) for example in facts.get("examples") or []]
        for column, count in (facts.get("misfits") or {}).items():
            columns[column] = columns.get(column, 0) + int(count)
    ordered = dict(sorted(columns.items(), key=lambda item: -item[1]))
    return Misfits(logs, rows, ordered, shown[:examples])


def transaction(ledger: Ledger, id_: str) -> TransactionView:
    """All that the ledger has of a transaction; raises LedgerError where it has none."""
    batch, events = ledger.get(id_), ledger.events(id_)
    event_texts = [(event, said(event.detail)) for event in events if event.what != DECISION]
    return TransactionView(
        _batch(batch, events),
        sides_of(batch, events, ledger.last_timeline(batch.pipeline)),
        ledger.ranges(id_),
        {item.range: item for item in ledger.totals(id_)},
        event_texts,
        decisions(events),
        batch.manifest or {},
        tables_of(batch),
    )


def said(detail: str) -> str:
    """An event's detail as a person reads it: `name value, ...` if it is a JSON object."""
    fields = items(detail)
    return detail if fields is None else ", ".join(f"{name} {value}" for name, value in fields.items())


def _batch(found: Transaction, events: Sequence[Event]) -> BatchView:
    facts = found.manifest or {}
    files, stored = facts.get("files"), facts.get("stored")
    own = f"{found.dag_id}/{found.run_id}"
    return BatchView(
        found,
        _steps(events, facts),
        None if files is None else int(files),
        None if stored is None else int(stored),
        int(facts.get("unfit") or 0),
        sum(decided.by != own for decided in decisions(events)),
        cost_of(facts, events),
        freshness_of(found, events),
        facts.get("filtered"),
    )


def _steps(events: Sequence[Event], facts: Mapping[str, Any]) -> list[StepTime]:
    changes = [event for event in events if event.what in State.__members__]
    spent = {State.OPEN.value: _parts(facts)}
    return [
        StepTime(_STEPS.get(one.what, one.what), one.at, other.at, spent.get(one.what, ""))
        for one, other in pairwise(changes)
    ]


def _parts(facts: Mapping[str, Any]) -> str:
    """How the time of an append was spent; empty where its driver did not tell."""
    if not (seconds := facts.get("seconds")):
        return ""
    waited = (facts.get("spent") or {}).get("waited")
    append = Text("{span} in the append", span=span(seconds))
    if waited:
        append = Text("{append}, up to {span} of it waiting for limits of reading", append=append, span=span(waited))
    return Text("{append}; the rest waiting for tasks to start, and recording", append=append)
