"""Values of logs that the ledger keeps for a while, where a pipeline's file says so."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import Engine, select

from airflow_provider_slshudi.ledger import models
from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import Kind, RangeTotals
from airflow_provider_slshudi.planning.ranges import Range
from airflow_provider_slshudi.views import findings, history

NAME, SECRET = "clicks", "hunter2-of-the-user"
OVER = timedelta(microseconds=-1)


def recorded(ledger: Ledger, run: str, kept: timedelta, at: int) -> str:
    """A batch with a value that did not fit, and a new key with a value; returns its id."""
    item = Range(0, at, at + 10)
    begun = ledger.begin(NAME, Kind.TAIL, [item], "clicks_tail", run)
    ledger.opened(begun.id, 1, begun.id.replace("T", "")[:17])
    facts = {"token": 1, "digest": "d", "unfit": 1, "misfits": {"price": 1}, "examples": [f"column price: {SECRET}"]}
    ledger.prepared(begun.id, 1, facts, [RangeTotals(item, 1, 1, None, None)], values_kept=kept)
    ledger.save_new_keys(NAME, begun.id, 9, {run: 9}, {run: [SECRET]}, frozenset(), kept)
    ledger.committed(begun.id, 1, f"2026010100000{at:04d}")
    return begun.id


def everything(engine: Engine) -> str:
    """All that the ledger's tables hold, as text."""
    with engine.connect() as connection:
        rows = [connection.execute(select(table)).all() for table in models.metadata.sorted_tables]
    return json.dumps([[list(row) for row in found] for found in rows], default=str)


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    made = Ledger(engine)
    made.register(NAME, "sls://ads/clicks", "file:///lake/clicks")
    return made


def test_values_whose_time_is_over_are_shown_no_more_and_deleted(ledger: Ledger, engine: Engine) -> None:
    recorded(ledger, "run-1", OVER, 0)
    assert SECRET in everything(engine)
    assert history.misfits(ledger.history(NAME, 10)).examples == []
    assert [key.examples for key in findings.unnamed(ledger, NAME)] == [[]]
    ledger.forget_values(NAME)
    assert SECRET not in everything(engine)
    found = history.misfits(ledger.history(NAME, 10))
    assert (found.logs, found.columns) == (1, {"price": 1}), "counts stay"


def test_values_whose_time_is_not_over_stay(ledger: Ledger, engine: Engine) -> None:
    id_ = recorded(ledger, "run-1", timedelta(days=7), 0)
    ledger.forget_values(NAME)
    assert history.misfits(ledger.history(NAME, 10)).examples == [f"column price: {SECRET}"]
    assert [key.examples for key in findings.unnamed(ledger, NAME)] == [[SECRET]]
    assert SECRET not in json.dumps([event.detail for event in ledger.events(id_)]), "history never goes"
