"""Tells processes apart beyond their numbers, and ends children with their parent or at a time; Linux.

On other systems this knows nothing of other processes, and children are on their own.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_UNREADABLE = "unreadable"
_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERING = Path("/proc/self/ns/pid")
# Of /proc/PID/stat, after the name: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
_THREADS, _BEGAN = 17, 19
_TIMING = Path("/proc/self/ns/time")
# The kernel gives this number to the machine's own namespace (PROC_PID_INIT_INO), to no container's.
_OF_THE_MACHINE = "pid:[4026531836]"
_MACHINE_ID = Path("/etc/machine-id")
_NETWORK = Path("/sys/class/net")
_BETWEEN, _MOST_CARDS = "+", 4
# Airflow's settings, connections and keys, and those of the queue of its workers.
_AIRFLOWS = ("AIRFLOW_", "CELERY_")
# https://www.postgresql.org/docs/current/libpq-envars.html, https://dev.mysql.com/doc/refman/8.0/en/environment-variables.html
_SECRETS = frozenset({"PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "MYSQL_PWD", "SLSHUDI_LOCAL_SECRET"})
# While a machine sleeps, the usual monotonic clock stands still, and the database's does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds since this machine's boot, including sleep; the clock of drivers' deadlines."""
    return time.clock_gettime(_CLOCK)


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that drivers and other children may have: not Airflow's, nor passwords of its databases.

    A connection of a job travels by the job's own way: its order, or `secrets` of a launcher.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _SECRETS and not name.lstrip("_").startswith(_AIRFLOWS)
    }


def this_process() -> str:
    """A name of this process that no other has, on any machine, at any time; empty if unknown."""
    if _libc is None:
        return ""
    return _name_of(os.getpid())


@lru_cache(1)
def _name_of(this: int) -> str:
    """Made once: a network card that comes or goes must not make a process another one."""
    return f"{_machine()}/{_boot()}/{this}/{_started(this)}"


def is_here(process: str) -> bool:
    """Whether a process that `this_process` named is of this machine, boot and numbering: we can look for it here."""
    if _libc is None or process.count("/") < 3:
        return False
    where, boot = process.rsplit("/", 2)[0], _boot()
    # A machine that was copied while it ran shares the boot's name.
    machine = where.removesuffix(boot).rstrip("/")
    return where.endswith(boot) and (not machine or _is_this(machine))


def is_gone(process: str) -> bool:
    """Whether a process that `this_process` named has surely ended; False if nothing is known of it.

    It has ended if the kernel has no such process, if it is a zombie none of whose threads is left, if its number
    belongs to a process that began at another time, or if this very machine was started anew since. A process that we
    cannot look at, say another user's, counts as alive. What it had sent to a server, of NFS say, may still be done.
    """
    if _libc is None or process.count("/") < 3:
        return False
    where, pid, started = process.rsplit("/", 2)
    machine, _, boot = where.rpartition("/pid:")[0].rpartition("/")
    if is_here(process):
        return _is_free(int(pid)) or (started != _UNREADABLE and _started(int(pid)) not in (started, _UNREADABLE))
    return _is_this(machine) and boot != _boot().partition("/")[0]


def ends_with_parent(how: signal.Signals, until: float | None = None) -> Callable[[], None]:
    """For Popen's `preexec_fn`: the child gets `how` once the thread that started it is gone.

    At `until`, by `clock`, the kernel's own timer ends the child. The timer goes on while the child is stopped, but not
    while the machine sleeps (https://man7.org/linux/man-pages/man2/setitimer.2.html), so the child's starter has to
    look at the clock too. Timer and signal outlive the child's `exec`
    (https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html).
    """
    parent = os.getpid()

    def set_up() -> None:
        if until is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            signal.setitimer(signal.ITIMER_REAL, max(until - clock(), 1e-3))
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, how)
            if os.getppid() != parent:  # the parent ended before prctl was called
                os.kill(os.getpid(), signal.SIGKILL)

    return set_up


def end_with_parent(to_parent: socket.socket | None = None) -> None:
    """Makes the kernel send this process SIGKILL once its parent is gone; at once where it has closed its end of a
    socket `to_parent`, since it was gone before."""
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if to_parent is not None and _is_closed(to_parent):
        os.kill(os.getpid(), signal.SIGKILL)


def _is_closed(ours: socket.socket) -> bool:
    """Whether the other end of a socket was closed, and all that it had sent was read."""
    try:
        return ours.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def adopt_orphans() -> None:
    """Makes this process the parent of all its descendants that lose their own, so that none gets out of sight.

    https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
    """
    if _libc is None or _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise OSError("orphans cannot be adopted on this system")


def _boot() -> str:
    """The boot, and the namespaces that number processes and say when they began: containers may have their own."""
    boot = _KERNEL_BOOT.read_text(encoding="ascii").strip()
    timing = _TIMING.readlink().name if _TIMING.exists() else ""  # since Linux 5.6
    return f"{boot}/{_NUMBERING.readlink()}+{timing}"


def _machine() -> str:
    """A name that the machine keeps when it is started anew and no other machine has; empty if there is none.

    It is made of the machine's id, which copies of an image share, with the address of each of its network cards, which
    they do not share. Cards come and go: names with one in common are of one machine (`_is_this`). A container has
    neither of its own.
    """
    try:
        if str(_NUMBERING.readlink()) != _OF_THE_MACHINE:
            return ""
        id_ = _MACHINE_ID.read_text(encoding="ascii").strip()
        cards = sorted({(card / "address").read_text(encoding="ascii").strip() for card in _cards()})
    except OSError:
        return ""
    if not id_:
        return ""
    return _BETWEEN.join(hashlib.sha256(f"{id_}/{card}".encode()).hexdigest()[:16] for card in cards[:_MOST_CARDS])


def _is_this(machine: str) -> bool:
    """Whether a name that `_machine` made, and that is not empty, is of this machine."""
    return bool(machine) and not {*machine.split(_BETWEEN)}.isdisjoint(_machine().split(_BETWEEN))


def _cards() -> list[Path]:
    """Cards with an address of their own: those of USB, a board's own one to its controller say, may share one."""
    cards = [card for card in _NETWORK.iterdir() if (card / "device").exists()]
    return [card for card in cards if (card / "device" / "subsystem").resolve().name != "usb"]


def _is_free(pid: int) -> bool:
    """Whether the kernel knows no process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot; `_UNREADABLE`, or empty for one that ended."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            # It numbers processes otherwise: a sandbox may show the machine's own.
            return _UNREADABLE
        # The name in parentheses may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _UNREADABLE
    # Its first thread ends on its own: of a JVM that thread only waits, and one of the others may be within a rename.
    threads = int(fields[_THREADS])
    if fields[0] == "X" or (fields[0] == "Z" and threads == 0):
        # On its way out, be it for good or since one of its other threads goes on as the first (`exec`).
        return _UNREADABLE
    return "" if fields[0] == "Z" and threads == 1 else fields[_BEGAN]
