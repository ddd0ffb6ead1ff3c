"""Schedules of two deciders of one transaction that once broke a promise, kept by name.

`python -m tests.model` searches for others: chance's schedules, or with `--pairs` all pairs of stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.model.interleavings import Case


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("first", "second"),
    [("open-started", "settle-decided"), ("open-owned", "delete_folder folder"), ("request", "settle-aborted")],
)
def test_an_instant_that_is_opened_while_its_transaction_is_aborted_is_rolled_back(first: str, second: str) -> None:
    """Its owner's name went with the folder, and it stayed pending for ever."""
    Case("open", first, second, False).run()
