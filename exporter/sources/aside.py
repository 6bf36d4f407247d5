"""Work that may hang, done beside the poll, which waits for a moment and goes on without it."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE = 0.3
"""Seconds that a poll waits; what comes later is there at a later poll."""


class Aside(Generic[T]):
    """One piece of work at a time, in a thread of its own; a hang costs that thread, no more.

    Args:
        patience: seconds that `start` waits for an end.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._thread: Thread | None = None
        self._answers: SimpleQueue[T | Exception] = SimpleQueue()

    @property
    def busy(self) -> bool:
        """Whether what was started has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], T]) -> None:
        """Begin, and wait for a moment; only while nothing else goes on."""

        def run() -> None:
            try:
                self._answers.put(work())
            except Exception as error:  # told to the one who takes the answer
                self._answers.put(error)

        self._thread = Thread(target=run, daemon=True)
        self._thread.start()
        self._thread.join(self._patience)

    def take(self) -> T | None:
        """The answer of work that has ended, once; None if there is none yet.

        Raises:
            Exception: as the work did.
        """
        try:
            answer = self._answers.get_nowait()
        except Empty:
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer
