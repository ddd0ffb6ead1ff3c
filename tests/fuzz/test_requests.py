"""A short run of mutated requests; `python -m tests.fuzz.requests` is the long one."""

import random
from pathlib import Path

from tests.fuzz.requests import fuzz


def test_mutated_requests_neither_break_nor_stall_nor_swell_the_server(tmp_path: Path) -> None:
    outcome = fuzz(tmp_path, count=3000, seed=random.randrange(1 << 32))
    print(outcome, *outcome.failures, sep="\n")
    assert outcome.ok
    assert {"200", "400", "401", "404"} <= set(outcome.statuses)
