"""A few batches on what several machines would run; `make topology` is the long form, and brings what this needs."""

import subprocess
import sys

import pytest

from tests.needs import needs_topology

pytestmark = [
    pytest.mark.long,
    needs_topology,
]


@pytest.mark.timeout(1800)
def test_a_few_batches_where_every_service_may_die_lose_and_double_nothing() -> None:
    command = [sys.executable, "-m", "tests.exact", "--trouble", "topology", "--batches", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 lost, 0 doubled, 0 jammed, 0 failed otherwise")
