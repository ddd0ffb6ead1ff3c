"""The protocol keeps its promises in schedules that chance makes, and in those of two deciders.

`python -m tests.model --examples N` searches longer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from tests.model.interleavings import STOPS, cases
from tests.model.machine import Protocol, thorough

EXAMPLES, SHARE = 12, 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_log_is_there_once_whatever_happens() -> None:
    chosen = Random().randrange(1 << 32)
    print(f"seed {chosen}")
    run_state_machine_as_test(seed(chosen)(Protocol), settings=thorough(EXAMPLES, 25))
    print(f"{Protocol.schedules} schedules, {Protocol.steps} steps, {len(Protocol.seen)} different stops")
    assert Protocol.schedules >= EXAMPLES


@pytest.mark.parametrize("step", STOPS)
def test_two_deciders_of_one_transaction_are_one(step: str) -> None:
    """A share of all pairs of stops, another one each time."""
    chosen = Random().randrange(1 << 32)
    print(f"seed {chosen}")
    for case in Random(chosen).sample([case for case in cases() if case.step == step], SHARE):
        print(case)
        case.run()
