"""Courses of a quantity over time, with values, integrals and inertia in closed form.

A signal is a mean and a few sine waves. Its integral and its answer through a first-order lag (a
heat sink, a running average) are known formulas, so a counter after ten years costs as much as one
after ten seconds, and asking twice gives the same answer. A timeline is a sequence of signals, each
from its start on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import atan, cos, exp, hypot, sin, tau
from typing import NamedTuple


class Wave(NamedTuple):
    """One sine wave: `amplitude * sin(speed * t + phase)`, speed in radians per second."""

    amplitude: float
    speed: float
    phase: float


def wave(amplitude: float, period: float, phase: float) -> Wave:
    """A wave by its period in seconds and its phase in turns (0 to 1)."""
    return Wave(amplitude, tau / period, tau * phase)


@dataclass(frozen=True, slots=True)
class Signal:
    """A mean and waves around it."""

    mean: float = 0.0
    waves: tuple[Wave, ...] = ()

    def at(self, t: float) -> float:
        """The value at a time."""
        value = self.mean
        for amplitude, speed, phase in self.waves:
            value += amplitude * sin(speed * t + phase)
        return value

    def integral(self, start: float, end: float) -> float:
        """The area under it between two times."""
        area = self.mean * (end - start)
        for amplitude, speed, phase in self.waves:
            area += amplitude / speed * (cos(speed * start + phase) - cos(speed * end + phase))
        return area

    def lagged(self, inertia: float) -> Signal:
        """Its steady answer through a lag whose time constant is `inertia` seconds."""
        return Signal(
            self.mean,
            tuple(
                Wave(a / hypot(1.0, w * inertia), w, phase - atan(w * inertia))
                for a, w, phase in self.waves
            ),
        )

    def __add__(self, other: Signal) -> Signal:
        return Signal(self.mean + other.mean, self.waves + other.waves)

    def __mul__(self, factor: float) -> Signal:
        return Signal(
            self.mean * factor, tuple(Wave(a * factor, w, phase) for a, w, phase in self.waves)
        )


class Timeline:
    """Signals one after the other: each holds from its start to the next one's.

    Args:
        parts: start in seconds, and signal; the first starts at 0, and the starts rise.
    """

    def __init__(self, parts: Iterable[tuple[float, Signal]]) -> None:
        self._starts: list[float] = []
        self._signals: list[Signal] = []
        self._totals: list[float] = []
        total = 0.0
        for start, signal in parts:
            if self._starts:
                total += self._signals[-1].integral(self._starts[-1], start)
            self._starts.append(start)
            self._signals.append(signal)
            self._totals.append(total)

    def at(self, t: float) -> float:
        """The value at a time."""
        return self._signals[bisect_right(self._starts, t) - 1].at(t)

    def total(self, t: float) -> float:
        """The area under it since time 0."""
        i = bisect_right(self._starts, t) - 1
        return self._totals[i] + self._signals[i].integral(self._starts[i], t)

    def lagged(self, inertia: float) -> Lagged:
        """The same through a lag, settled at time 0."""
        return Lagged(self._starts, [s.lagged(inertia) for s in self._signals], inertia)


class Lagged:
    """What a lag makes of a timeline: each part's steady answer, plus what fades of the old one.

    Args:
        starts: of the parts.
        steady: each part's steady answer.
        inertia: the time constant in seconds.
    """

    def __init__(self, starts: Sequence[float], steady: Sequence[Signal], inertia: float) -> None:
        self._starts = starts
        self._steady = steady
        self._inertia = inertia
        self._offsets = [0.0]
        for i in range(1, len(starts)):
            self._offsets.append(self._value(i - 1, starts[i]) - steady[i].at(starts[i]))

    def at(self, t: float) -> float:
        """The value at a time."""
        return self._value(bisect_right(self._starts, t) - 1, t)

    def _value(self, i: int, t: float) -> float:
        steady = self._steady[i].at(t)
        if not self._offsets[i]:
            return steady
        return steady + self._offsets[i] * exp((self._starts[i] - t) / self._inertia)
