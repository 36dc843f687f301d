"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Called in a child of `parent_pid`: it gets SIGTERM when its parent dies, however that happens.

    Linux only; elsewhere it does nothing. Ends the child at once if the parent is dead already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:  # it died before the kernel was asked, and will not die again
        os._exit(1)


def leave_interrupts_to_parent() -> None:
    """Called in a worker process: Ctrl-C reaches the whole group, and the parent decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        end_with_parent(parent.pid)
