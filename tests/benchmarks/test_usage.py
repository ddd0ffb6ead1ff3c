"""What processes took is counted as long as their parent has not waited for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import usage

BUSY = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nsys.stdin.read()"
MINE = "mine"


def test_a_process_that_has_ended_still_counts_by_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "KINDS", {"counted here": MINE})
    child = subprocess.Popen([sys.executable, "-c", BUSY, "counted here"], stdin=-1, stdout=-1)
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    alive = usage.used(0)[MINE]
    child.stdin.close()
    until("it has ended", lambda: not usage.memory(0)[MINE])
    assert usage.used(0)[MINE] >= alive > 0.2
    child.wait()
    assert not usage.used(0)[MINE]
