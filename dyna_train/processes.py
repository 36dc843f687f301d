"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Called in a child: the kernel sends it SIGTERM when its parent dies, however that happens. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_interrupts_to_parent() -> None:
    """Called in a worker process: Ctrl-C reaches the whole group, and the parent decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
