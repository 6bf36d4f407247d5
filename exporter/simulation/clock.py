"""Simulated time."""

from __future__ import annotations

import time
from typing import Protocol

STEPS_PER_SECOND = 10
"""How often the node changes, in real time, as firmware that averages does."""


class Clock(Protocol):
    """Something that tells the simulated time."""

    def now(self) -> float:
        """Seconds since the simulated node was started; never goes backwards."""


class SimulatedClock:
    """Time that runs `speed` times as fast as the real one, in steps.

    Between two steps nothing changes, so all that one poll reads belongs together.

    Args:
        speed: simulated seconds per real second.
        started: when it began, on the real monotonic clock, which all processes of a host share.
    """

    def __init__(self, speed: float, started: float) -> None:
        self._speed = speed
        self._started = started

    def now(self) -> float:
        """The simulated time in seconds, usable as a monotonic time."""
        steps = max(0, int((time.monotonic() - self._started) * STEPS_PER_SECOND))
        return steps * self._speed / STEPS_PER_SECOND
