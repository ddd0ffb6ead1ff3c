"""The proof of a chaos run finds what it is there for: rows lost, rows too many, rows of another time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos import proof
from tests.chaos.place import Line, change

EVENTS, CHANGES = Line("events", "file:///lake/events"), Line("changes", "file:///lake/changes", change)
HELD = {f"0-1-{number}": {"event_id": f"event-{number}"} for number in range(3)}
ROWS = [(key, log["event_id"]) for key, log in HELD.items()]
CHANGED = {f"0-1-{number}": {"id": f"c-{number % 2}", "number": str(number)} for number in range(4)}
NEWEST = [("c-0", 2), ("c-1", 3)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The rows that the table has."""
    rows: list[tuple[Any, ...]] = []
    monkeypatch.setattr(proof, "rows_of", lambda line, *names: rows)
    return rows


@pytest.mark.parametrize(
    ("rows", "lost", "doubled", "wrong"),
    [
        (ROWS, 0, 0, 0),
        (ROWS[1:], 1, 0, 1),
        ([*ROWS, ROWS[0]], 0, 1, 0),
        ([*ROWS, ("0-9-0", "event-0")], 0, 1, 0),
        ([*ROWS[:2], (ROWS[2][0], "event-9")], 0, 0, 2),
    ],
    ids=["as held", "one lost", "one doubled", "one of no log", "another log's content"],
)
def test_rows_of_events(
    table: list[tuple[Any, ...]], rows: list[tuple[str, str]], lost: int, doubled: int, wrong: int
) -> None:
    table += rows
    found = proof._events(EVENTS, HELD, acknowledged=3)
    assert (found.lost, found.doubled, len(found.wrong)) == (lost, doubled, wrong)
    assert found.ok is (rows is ROWS)


@pytest.mark.parametrize(
    ("rows", "lost", "doubled"),
    [
        (NEWEST, 0, 0),
        (NEWEST[1:], 1, 0),
        ([("c-0", 0), NEWEST[1]], 1, 0),
        ([*NEWEST, NEWEST[0]], 0, 1),
        ([*NEWEST, ("c-9", 1)], 0, 1),
        ([("c-0", 7), NEWEST[1]], 0, 1),
    ],
    ids=["newest", "one lost", "an old version", "one doubled", "one of no log", "a version of no log"],
)
def test_rows_of_changes(table: list[tuple[Any, ...]], rows: list[tuple[str, int]], lost: int, doubled: int) -> None:
    table += rows
    found = proof._changes(CHANGES, CHANGED, acknowledged=4)
    assert (found.lost, found.doubled, found.wrong) == (lost, doubled, [])


def test_logs_that_the_service_has_lost_are_no_proof(table: list[tuple[Any, ...]]) -> None:
    table += NEWEST
    assert proof._changes(CHANGES, CHANGED, acknowledged=5).wrong
    assert not proof.Outcome().ok, "nothing was compared"
