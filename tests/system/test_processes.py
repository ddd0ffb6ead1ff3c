"""Processes: told apart beyond their numbers, and children that end with their parent or at a time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import airflow_provider_slshudi
from airflow_provider_slshudi.system import processes
from airflow_provider_slshudi.system.processes import clock, ends_with_parent, is_gone, is_here, this_process
from tests.namespaces import unshared
from tests.needs import needs_root
from tests.users import NOBODY, require_python_of
from tests.waiting import until

NAME = "from airflow_provider_slshudi.system.processes import this_process; print(this_process(), flush=True); input()"
PARENT = """
import signal, subprocess, sys, time
from airflow_provider_slshudi.system.processes import ends_with_parent
child = subprocess.Popen(["sleep", "60"], preexec_fn=ends_with_parent(signal.SIGKILL))
print(child.pid, flush=True)
time.sleep(60)
"""
TASK = """
import socket, sys
from airflow_provider_slshudi.system.processes import end_with_parent
end_with_parent(socket.socket(fileno=int(sys.argv[1])))
print("lives")
"""
LEADERLESS = """
import ctypes, os, threading
from airflow_provider_slshudi.system.processes import this_process
libc = ctypes.CDLL(None)
def work():
    os.read(0, 1)
    os._exit(0)
print(this_process(), flush=True)
threading.Thread(target=work).start()
libc.pthread_exit(None)
"""
NUMBERED = """
from airflow_provider_slshudi.system.processes import is_gone, this_process
print(this_process(), is_gone(this_process()))
"""
HIDDEN = """
mount -o remount,hidepid=2 /proc
cd {root}
{python} -c "
from airflow_provider_slshudi.system.processes import this_process
import time
print(this_process(), flush=True)
time.sleep(60)" > {name} &
holder=$!
while ! [ -s {name} ]; do sleep 0.05; done
name=$(cat {name})
asked() {{ setpriv --reuid=65534 --regid=65534 --clear-groups {python} -c "
import sys
from pathlib import Path
from airflow_provider_slshudi.system.processes import is_gone
if sys.argv[2] == 'look':
    print('seen' if Path(f'/proc/{{sys.argv[1].split(chr(47))[-2]}}').exists() else 'hidden')
print('gone' if is_gone(sys.argv[1]) else 'lives')" "$name" $1; }}
asked look
kill -9 $holder
wait $holder || true
asked once
"""


def test_a_process_is_gone_once_it_ended_be_it_reaped_or_not() -> None:
    with subprocess.Popen([sys.executable, "-c", NAME], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert not is_gone(name) and not is_gone(this_process()) and name != this_process()
        other.kill()
        psutil.Process(other.pid).wait(10)
    assert is_gone(name)


def test_a_process_whose_first_thread_has_ended_is_not_gone_while_another_one_works() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADERLESS], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdin is not None
        name = child.stdout.readline().decode().strip()
        until("its first thread ends", lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
        assert not is_gone(name)
        child.stdin.write(b"\n")
        child.stdin.flush()
        until("the last thread ends", lambda: is_gone(name))
        assert child.returncode is None, "nobody has reaped it"


@pytest.mark.parametrize("state, threads", [("X", 0), ("X", 2), ("Z", 0)])
def test_a_process_of_which_another_thread_becomes_the_first_is_not_gone(
    monkeypatch: pytest.MonkeyPatch, state: str, threads: int
) -> None:
    name = this_process()
    stat = Path("/proc/self/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    fields[0], fields[17] = state, str(threads)
    read = Path.read_text

    def told(path: Path, **how: Any) -> str:
        return f"1 (a) {' '.join(fields)}" if path.name == "stat" else read(path, **how)

    monkeypatch.setattr(Path, "read_text", told)
    assert not is_gone(name)


def test_where_proc_numbers_others_no_start_is_taken_for_ones_own() -> None:
    command = [*unshared("pid"), "--fork", sys.executable, "-c", NUMBERED]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert told[0].endswith("/unreadable") and told[1:] == ["False"]


def test_of_another_machine_or_nobody_nothing_is_known() -> None:
    machine, boot, namespace, pid, started = this_process().rsplit("/", 4)
    assert not is_gone("")
    assert not is_gone(f"{machine}/{boot}/pid:[1]/{pid}/1")
    assert not is_gone(f"another/{boot[::-1]}/{namespace}/{pid}/1")
    # As versions before named it: without the machine.
    assert not is_gone(f"{boot[::-1]}/{namespace}/{pid}/1") and not is_gone(f"{boot}/{namespace}/{pid}/{started}")
    # A copy of this machine, made while it ran.
    assert not is_here(f"another/{boot}/{namespace}/{pid}/{started}") and is_here(this_process())
    # The number is in use again, by a process that began at another time.
    assert is_gone(f"{machine}/{boot}/{namespace}/{pid}/{int(started) - 1}")


def test_what_ran_before_this_machine_was_started_anew_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Two machines made from one image, which share an id and have cards of their own; and a container."""

    def machine(cards: str, boot: str, numbering: str = "pid:[4026531836]") -> str:
        folder = tmp_path / f"{cards}-{boot}-{numbering}"
        for number, card in enumerate(cards.split()):
            (folder / "net" / f"eth{number}" / "device").mkdir(parents=True, exist_ok=True)
            (folder / "net" / f"eth{number}" / "address").write_text(card)
        (folder / "id").write_text("one-image\n")
        (folder / "boot").write_text(boot)
        link = folder / "numbering"
        link.unlink(missing_ok=True)
        link.symlink_to(numbering)
        for name, place in {"_NETWORK": "net", "_MACHINE_ID": "id", "_KERNEL_BOOT": "boot"}.items():
            monkeypatch.setattr(processes, name, folder / place)
        monkeypatch.setattr(processes, "_NUMBERING", link)
        processes._name_of.cache_clear()
        return this_process()

    request.addfinalizer(processes._name_of.cache_clear)
    before = machine("52:54:00:00:00:01", "boot-1")
    contained = machine("52:54:00:00:00:01", "boot-1", "pid:[4026532000]")
    machine("52:54:00:00:00:02", "boot-2")
    assert not is_gone(before) and not is_gone(contained), "another machine, of the same image"
    machine("52:54:00:00:00:01", "boot-2")
    assert is_gone(before)
    assert not is_gone(contained), "a container does not tell which machine it was on"
    machine("52:54:00:00:00:01 52:54:00:00:00:03", "boot-2")
    assert is_gone(before), "it has another card by now"
    assert is_here(machine("52:54:00:00:00:03 52:54:00:00:00:04", "boot-2"))
    machine("52:54:00:00:00:05", "boot-2")
    assert not is_gone(before), "nothing that it had is left"


def test_cards_of_usb_are_no_part_of_a_machines_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board's own one to its controller has one address on all boards of a kind."""
    monkeypatch.setattr(processes, "_NETWORK", tmp_path / "net")
    for name, bus in (("eth0", "pci"), ("usb0", "usb")):
        device = tmp_path / "net" / name / "device"
        device.mkdir(parents=True)
        (tmp_path / "bus" / bus).mkdir(parents=True)
        (device / "subsystem").symlink_to(tmp_path / "bus" / bus)
    (tmp_path / "net" / "lo").mkdir()
    assert [card.name for card in processes._cards()] == ["eth0"]


def test_a_network_card_that_comes_makes_no_process_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = this_process()
    monkeypatch.setattr(processes, "_machine", lambda: "another")
    assert this_process() == before


@needs_root
def test_a_process_that_another_user_cannot_look_at_lives(tmp_path: Path) -> None:
    """The holder's /proc is hidden (hidepid=2) from the user who asks; gone is what the kernel says is gone."""
    require_python_of(NOBODY)
    script = HIDDEN.format(
        name=tmp_path / "name", python=sys.executable, root=Path(airflow_provider_slshudi.__file__).parents[1]
    )
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec", script]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["hidden", "lives", "gone"], told.stderr


@needs_root
def test_of_a_container_with_a_time_of_its_own_nothing_is_known() -> None:
    """There the kernel says of every process that it began at another time."""
    asks = "import sys; from airflow_provider_slshudi.system.processes import is_gone; print(is_gone(sys.argv[1]))"
    command = ["unshare", "--time", "--boottime", "100000", "--fork", sys.executable, "-c", asks, this_process()]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["False"], told.stderr


def test_a_child_ends_with_a_killed_parent_even_where_it_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        child.suspend()
        parent.kill()
    child.wait(10)


def test_a_child_does_not_live_past_its_time_nor_does_one_that_was_stopped_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    until = clock() + 0.5
    assert subprocess.Popen(command, preexec_fn=ends_with_parent(signal.SIGKILL, until)).wait(20) == -signal.SIGALRM

    woke = tmp_path / "woke"
    after = time.monotonic() + 1.5
    busy = f"import pathlib, time\nwhile time.monotonic() < {after}: pass\npathlib.Path({str(woke)!r}).touch()"
    child = subprocess.Popen([sys.executable, "-c", busy], preexec_fn=ends_with_parent(signal.SIGKILL, clock() + 1))
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(20) == -signal.SIGALRM
    assert not woke.exists()


@pytest.mark.parametrize("is_gone_before", [False, True])
def test_a_task_whose_supervisor_is_gone_before_it_is_bound_to_it_ends_at_once(is_gone_before: bool) -> None:
    """The kernel tells it of no death that was before."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if is_gone_before:
            ours.close()
        command = [sys.executable, "-c", TASK, str(theirs.fileno())]
        done = subprocess.run(command, pass_fds=[theirs.fileno()], capture_output=True, text=True)
    gone, lives = (-signal.SIGKILL, ""), (0, "lives\n")
    assert (done.returncode, done.stdout) == (gone if is_gone_before else lives)
