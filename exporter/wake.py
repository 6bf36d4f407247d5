"""Waking the main thread while it waits: by a signal, or from another thread."""

from __future__ import annotations

import math
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LONGEST = 3600.0
_DRAINED = 4096


class Waker:
    """A pipe to oneself. No wake-up is lost, however close together they come.

    Python's own handlers run between two steps of the main thread, too late for a wait that has
    just begun; the interpreter's part of a handler writes into the pipe at once. It is never
    closed, since another thread may wake at any time.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the wait that is going on, or the next one at once; from any thread."""
        with suppress(BlockingIOError):  # full: it wakes as it is
            os.write(self._write, b"\0")

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Let every signal that has a handler in Python wake as well. In the main thread."""
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def wait(self, seconds: float) -> None:
        """Wait until woken, for so long at most, and perhaps shorter."""
        waiting = select.poll()
        waiting.register(self._read, select.POLLIN)
        waiting.poll(math.ceil(min(seconds, _LONGEST) * 1000))
        with suppress(BlockingIOError):
            while os.read(self._read, _DRAINED):
                pass
