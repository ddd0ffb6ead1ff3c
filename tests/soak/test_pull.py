"""A short soak of the client under faults; `make soak` has the long one."""

import random
from pathlib import Path

import pytest

from tests.exact.outcome import Outcome
from tests.soak.pull import soak

pytestmark = pytest.mark.long


def test_nothing_is_missing_or_twice_while_a_fifth_of_all_requests_fail(tmp_path: Path) -> None:
    outcome = Outcome()
    soak(tmp_path, 40_000, 0.2, random.randrange(1 << 32), outcome)
    print(outcome)
    assert outcome.ok, str(outcome)
    assert outcome.figures["faults"] >= 3
