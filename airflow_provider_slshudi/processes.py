"""Who a process is beyond its number, and children that end with their parent or at a time; Linux.

Elsewhere nothing is known of other processes, and children are on their own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def this_process() -> str:
    """Names this process among all of all machines and times; empty where that is not known."""
    if _libc is None:
        return ""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def is_gone(process: str) -> bool:
    """Whether a process that `this_process` named is surely no more; False for one of another machine."""
    machine, _, rest = process.rpartition("/")
    machine, _, pid = machine.rpartition("/")
    return bool(pid) and _libc is not None and machine == _machine() and _started(int(pid)) != rest


def ends_with_parent(how: signal.Signals, until: float | None = None) -> Callable[[], None]:
    """For Popen's `preexec_fn`: the child gets `how` once the thread that started it is gone.

    `until`, on `time.monotonic`'s clock, is when the child is ended at the latest, by the kernel's own timer, which
    goes on while the child is stopped (https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html,
    https://man7.org/linux/man-pages/man2/setitimer.2.html). Both outlive the child's `exec`.
    """
    parent = os.getpid()

    def set_up() -> None:
        if until is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), 1e-3))
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, how)
            if os.getppid() != parent:  # it ended before it could be asked for
                os.kill(os.getpid(), signal.SIGKILL)

    return set_up


def end_with_parent() -> None:
    """Lets this very process get SIGKILL once its parent is gone."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of whatever loses its parent below it, so that nothing gets out of sight.

    https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
    """
    if _libc is None or _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise OSError("orphans cannot be adopted on this system")


def _machine() -> str:
    """The boot, and what numbers its processes: containers of one machine have numbers of their own."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot; empty for one that ended."""
    try:
        # The name in parentheses may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
