"""Short chaos runs; `make chaos` and `make handoff` are the long ones."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("trouble", [("chaos", "--pipelines", "1"), ("handoff",)], ids=["chaos", "handoff"])
def test_a_few_batches_under_random_kills_lose_and_double_nothing(trouble: tuple[str, ...]) -> None:
    # A process of its own, since it adopts whatever loses its parent below it.
    command = [sys.executable, "-m", "tests.exact", "--trouble", *trouble, "--batches", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 lost, 0 doubled, 0 jammed, 0 failed otherwise")
