"""No process outlives the one that started it, whatever it is busy with."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends.

    The end of standard input ends an idle worker, but one that hangs in a vendor's call, or is
    stopped, never reads it.
    """
    with contextlib.suppress(AttributeError):  # a libc without it: the end of the input must do
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def has_orphaned_input() -> bool:
    """Whether nobody can write to standard input any more: the parent ended before we asked."""
    waiting = select.poll()
    waiting.register(sys.stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in waiting.poll(0))


def end_with_parent() -> None:
    """As `die_with_parent`, and end now if it was too late for that."""
    die_with_parent()
    if has_orphaned_input():
        os._exit(0)
