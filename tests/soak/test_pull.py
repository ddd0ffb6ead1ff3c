"""A short soak of the client under faults; `python -m tests.soak.pull` is the long one."""

import random
from pathlib import Path

import pytest

from tests.soak.pull import soak

pytestmark = pytest.mark.long


def test_nothing_is_missing_or_twice_while_a_fifth_of_all_requests_fail(tmp_path: Path) -> None:
    outcome = soak(tmp_path, logs=40_000, failing=0.2, seed=random.randrange(1 << 32))
    print(outcome)
    assert outcome.ok
    assert sum(outcome.faults.values()) >= 3
