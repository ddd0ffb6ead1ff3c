"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """For Popen's `preexec_fn`: SIGTERM to the child once the thread that started it is gone; Linux only.

    A parent that is killed hard cannot end its children itself.
    https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
