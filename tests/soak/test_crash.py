"""A short crash soak; `python -m tests.soak.crash` is the long one."""

import random
from pathlib import Path

import pytest

from tests.soak.crash import crash

pytestmark = pytest.mark.long


def test_no_acknowledged_log_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    outcome = crash(tmp_path, kills=4, seed=random.randrange(1 << 32))
    print(outcome)
    assert outcome.ok, str(outcome)
    assert outcome.acknowledged > 20 and outcome.checkpoints > 5
