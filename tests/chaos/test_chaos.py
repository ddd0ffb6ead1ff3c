"""A short chaos run; `make chaos` is the long one."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long


@pytest.mark.timeout(1200)
def test_a_few_batches_under_random_kills_lose_and_double_nothing() -> None:
    # A process of its own, since it adopts whatever loses its parent below it.
    command = [sys.executable, "-m", "tests.exact", "--trouble", "chaos", "--batches", "3", "--pipelines", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 lost, 0 doubled, 0 jammed, 0 failed otherwise")
