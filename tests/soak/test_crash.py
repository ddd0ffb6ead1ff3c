"""A short crash soak; `make soak` has the long one."""

import random
from pathlib import Path

import pytest

from tests.exact.outcome import Outcome
from tests.soak.crash import crash

pytestmark = pytest.mark.long


def test_no_acknowledged_log_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    outcome = Outcome()
    crash(tmp_path, 4, random.randrange(1 << 32), outcome)
    print(outcome)
    assert outcome.ok, str(outcome)
    assert outcome.logs > 20 and outcome.figures["checkpoints"] > 5
