"""Processes: told apart beyond their numbers, and children that end with their parent or at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from airflow_provider_slshudi.processes import ends_with_parent, is_gone, this_process

NAME = "from airflow_provider_slshudi.processes import this_process; print(this_process(), flush=True); input()"
PARENT = """
import signal, subprocess, sys, time
from airflow_provider_slshudi.processes import ends_with_parent
child = subprocess.Popen(["sleep", "60"], preexec_fn=ends_with_parent(signal.SIGKILL))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_process_is_gone_once_it_ended_be_it_reaped_or_not() -> None:
    with subprocess.Popen([sys.executable, "-c", NAME], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert not is_gone(name) and not is_gone(this_process()) and name != this_process()
        other.kill()
        psutil.Process(other.pid).wait(10)
    assert is_gone(name)


def test_of_another_machine_another_boot_or_nobody_nothing_is_known() -> None:
    boot, namespace, pid, started = this_process().rsplit("/", 3)
    assert not is_gone("")
    assert not is_gone(f"another/{namespace}/{pid}/1")
    assert not is_gone(f"{boot}/pid:[1]/{pid}/1")
    # The number is in use again, by a process that began at another time.
    assert is_gone(f"{boot}/{namespace}/{pid}/{int(started) - 1}")


def test_a_child_ends_with_a_killed_parent_even_where_it_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        child.suspend()
        parent.kill()
    child.wait(10)


def test_a_child_does_not_live_past_its_time_nor_does_one_that_was_stopped_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    until = time.monotonic() + 0.5
    assert subprocess.Popen(command, preexec_fn=ends_with_parent(signal.SIGKILL, until)).wait(20) == -signal.SIGALRM

    woke = tmp_path / "woke"
    after = time.monotonic() + 1.5
    busy = f"import pathlib, time\nwhile time.monotonic() < {after}: pass\npathlib.Path({str(woke)!r}).touch()"
    child = subprocess.Popen(
        [sys.executable, "-c", busy], preexec_fn=ends_with_parent(signal.SIGKILL, time.monotonic() + 1)
    )
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(20) == -signal.SIGALRM
    assert not woke.exists()
