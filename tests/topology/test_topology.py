"""A few batches on what several machines would run; `make topology` is the long form, and brings what this needs."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.services import has_redis

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("celery") is None or not has_redis(),
        reason="needs the extra `topology` and Debian's redis-server, which `make topology` asks for",
    ),
]


@pytest.mark.timeout(1800)
def test_a_few_batches_where_every_service_may_die_lose_and_double_nothing() -> None:
    command = [sys.executable, "-m", "tests.topology", "--batches", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 lost, 0 doubled, 0 living ones fenced")
