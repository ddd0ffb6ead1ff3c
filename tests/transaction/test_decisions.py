"""Recovery's table, cell by cell, as docs and code must have it."""

from __future__ import annotations

import itertools

import pytest

from airflow_provider_slshudi.ledger.records import LEGAL, State
from airflow_provider_slshudi.transaction.decisions import Decision, InstantState, Obstacle, decide, why

# Rows: the ledger's state. Columns: the timeline in this order.
COLUMNS = ["NOTHING", "REQUESTED", "INFLIGHT", "COMPLETED_OURS", "COMPLETED_FOREIGN"]
COLUMNS += ["ROLLING_BACK", "ROLLED_BACK", "UNREADABLE"]
LOST, AHEAD, FOREIGN, UNREADABLE = "STOP_LEDGER_LOST", "STOP_LEDGER_AHEAD", "STOP_FOREIGN", "STOP_UNREADABLE"
BACK = "ROLL_BACK_AND_ABORT"
NOTHING = "NOTHING_TO_DO"
EXPECTED = {
    State.PLANNED: ["ABORT", BACK, BACK, LOST, FOREIGN, BACK, "ABORT", UNREADABLE],
    State.OPEN: ["ABORT", BACK, BACK, LOST, FOREIGN, BACK, "ABORT", UNREADABLE],
    State.PREPARED: ["ABORT", BACK, "RECOMMIT", "MARK_COMMITTED", FOREIGN, BACK, "ABORT", UNREADABLE],
    State.COMMITTED: [AHEAD, AHEAD, AHEAD, NOTHING, AHEAD, AHEAD, AHEAD, UNREADABLE],
    State.ABORTED: [NOTHING, "ROLL_BACK", "ROLL_BACK", LOST, FOREIGN, "ROLL_BACK", NOTHING, UNREADABLE],
    None: [NOTHING, LOST, LOST, LOST, NOTHING, LOST, NOTHING, UNREADABLE],
}
CELLS = [
    (state, InstantState(column), Decision(decision))
    for state, decisions in EXPECTED.items()
    for column, decision in zip(COLUMNS, decisions, strict=True)
]


@pytest.mark.parametrize(("state", "timeline", "decision"), CELLS)
def test_every_cell(state: State | None, timeline: InstantState, decision: Decision) -> None:
    assert decide(state, timeline) is decision
    assert len(why(state, timeline)) > 10


def test_the_table_is_total() -> None:
    assert {cell[:2] for cell in CELLS} == set(itertools.product([*State, None], InstantState))
    assert {decision for *_, decision in CELLS} == set(Decision)


@pytest.mark.parametrize("obstacle", Obstacle)
def test_an_obstacle_changes_a_recommit_and_nothing_else(obstacle: Obstacle) -> None:
    for state, timeline, decision in CELLS:
        expected = Decision.ROLL_BACK_AND_ABORT if decision is Decision.RECOMMIT else decision
        assert decide(state, timeline, obstacle) is expected


def test_decisions_change_the_ledger_only_where_it_allows_that() -> None:
    leads_to = {
        Decision.ABORT: State.ABORTED,
        Decision.ROLL_BACK_AND_ABORT: State.ABORTED,
        Decision.RECOMMIT: State.COMMITTED,
        Decision.MARK_COMMITTED: State.COMMITTED,
    }
    for state, timeline in itertools.product(State, InstantState):
        target = leads_to.get(decide(state, timeline))
        assert target is None or target in LEGAL[state]


def test_data_that_may_be_committed_is_never_rolled_back() -> None:
    for state in [*State, None]:
        for timeline in (InstantState.COMPLETED_OURS, InstantState.COMPLETED_FOREIGN, InstantState.UNREADABLE):
            assert decide(state, timeline) not in (Decision.ROLL_BACK, Decision.ROLL_BACK_AND_ABORT, Decision.ABORT)


def test_what_stops() -> None:
    assert {decision for decision in Decision if decision.stops} == {
        Decision(name) for name in (LOST, AHEAD, FOREIGN, UNREADABLE)
    }
