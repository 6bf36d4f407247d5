"""Does a floor climb steadily? The one question behind both kinds of leak.

Of the floors of a window, the memory that was never given back up to now is the running minimum
from the right. For a leak that is a straight line or a stair of even steps. A saw, noise and
phases leave it flat until their last swing; loading, pools and growing batches bend it down.
The latest quarter of a window only confirms: what rises there may still be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median

from exporter.leaks.floors import LOAD_UNIT, PAGE_BITS, Floors, Level
from exporter.leaks.load import load_per_second, without_load
from exporter.leaks.model import Thresholds

WINDOWS = (32, 25, 19, 14, 10, 8, 7)
"""Lengths in buckets, longest first. Below 7, chance alone is monotone too often."""
_RHYTHM = 100 * 3600.0
"""A rise that lasts longer is no rhythm of days and a long weekend."""
_HALF_DAY = 13 * 3600.0
"""Nor does the load of a day go one way for longer, be it ever so noisy."""
_MOST_OF_A_DAY = 20 * 3600.0
"""A window that sees the load of a day go up and down."""
_MEMORY = 8 * 86_400.0
"""How far back a level that was held once makes a rise to it nothing new: a week and a day."""
_MOST_EVEN = 0.78
"""A short window need only have so much of the even steps that fit into it."""


@dataclass(frozen=True, slots=True)
class Rise:
    """A steady rise of a floor.

    Attributes:
        since: when it began.
        until: the end of what is confirmed.
        base, growth: pages at the start, and on top of it at `until`.
    """

    since: float
    until: float
    base: int
    growth: int

    @property
    def bytes_per_second(self) -> float:
        """How fast."""
        return (self.growth << PAGE_BITS) / (self.until - self.since)


def rise(
    floors: Floors, born: float, least: float, per_load: float, limits: Thresholds
) -> Rise | None:
    """The longest steady rise that goes on now, if there is any.

    Args:
        floors: the series.
        born: nothing before this moment counts.
        least: the least growth that counts, in bytes.
        per_load: bytes that one unit more of load may take of its own accord.
        limits: the thresholds.
    """
    pages = max(1, int(least) >> PAGE_BITS)
    levels = floors.levels
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        count = len(level.floors)
        if count < WINDOWS[-1]:
            continue
        kept = _kept(level.floors)
        moves = max(level.floors) - level.floors[0] >= pages
        for length in WINDOWS if moves else ():
            start = count - length
            if start < 0:
                continue
            began = level.buckets[start] * level.width
            span = level.buckets[-1] * level.width - began
            if began < born or span < limits.span_seconds:
                continue
            found = None
            if kept[-1 - length // 4] - kept[start] >= pages:
                base = kept[start]
                if span < _RHYTHM:
                    base = max(base, _usual(levels[depth:], born, began, limits))
                found = _steady(
                    level, start, level.floors[start:], level.loads[start:], base, pages, limits
                )
                if found is not None and span < _HALF_DAY:
                    explained = per_load * load_per_second(level, start, length)
                    if found.bytes_per_second <= explained:
                        found = None
            if found is None and _MOST_OF_A_DAY <= span < _RHYTHM:
                rest = without_load(level, start)
                if rest is not None:
                    found = _steady(level, start, rest, None, -(1 << 60), pages, limits)
            if found is not None:
                return found
    return None


def pace(floors: Floors, limits: Thresholds) -> float | None:
    """Bytes per second at which the floor moves now (Theil-Sen), or None where that is not known.

    Over five hours in buckets of twenty minutes, where so many are there.
    """
    for level in (floors.levels[1], floors.levels[0]):
        times, values = level.buckets[-16:], level.floors[-16:]
        count = len(times)
        if count < WINDOWS[-1] or (times[-1] - times[0]) * level.width < limits.span_seconds:
            continue
        slopes = [
            (values[later] - values[earlier]) / (times[later] - times[earlier])
            for later in range(1, count)
            for earlier in range(later)
        ]
        return median(slopes) * (1 << PAGE_BITS) / level.width
    return None


def _kept(floors: Sequence[int]) -> list[int]:
    """For each moment, what was never given back since."""
    kept = list(floors)
    for index in range(len(kept) - 2, -1, -1):
        if kept[index + 1] < kept[index]:
            kept[index] = kept[index + 1]
    return kept


def _usual(levels: Sequence[Level], born: float, moment: float, limits: Thresholds) -> int:
    """Up to where a floor in the days before makes a rise nothing new: its highest and a margin."""
    oldest = max(born, moment - _MEMORY)
    highest, lowest = -(1 << 60), 1 << 60
    for level in levels:
        width = level.width
        floors = [
            floor
            for bucket, floor in zip(level.buckets, level.floors, strict=True)
            if oldest <= bucket * width <= moment - width
        ]
        # What was held over three buckets: a single sample may have met a peak.
        for held in map(min, floors, floors[1:], floors[2:]):
            highest, lowest = max(highest, held), min(lowest, held)
    return highest + int(limits.swing_ratio * max(0, highest - lowest))


def _steady(
    level: Level,
    start: int,
    floors: Sequence[int],
    loads: Sequence[int] | None,
    base: int,
    least: int,
    limits: Thresholds,
) -> Rise | None:
    """A rise of a window's floors above a base, if it is steady.

    Args:
        level: for the times.
        start: where the window begins in it.
        floors: of the window.
        loads: of the window; None where they are taken off the floors already.
        base: what is below is nothing new.
        least: the least growth that counts, in pages.
        limits: the thresholds.
    """
    end = len(floors) - 1 - len(floors) // 4
    kept = _kept(floors)[: end + 1]
    whole = kept[end] - kept[0]
    base = max(base, kept[0])
    growth = kept[end] - base
    if growth < least:
        return None
    # A base above the start hides how it began, but not that it slows down.
    if sum(kept) - (end + 1) * kept[0] > limits.concavity * whole * (end + 1):
        return None
    total = squares = height = onset = 0
    for index, floor in enumerate(kept):
        above = max(floor - base, 0)
        squares += (above - height) ** 2
        total += above
        height = above
        if above * 20 <= growth:
            onset = index
    if not limits.convexity <= total / (growth * (end + 1)) <= limits.concavity:
        return None
    if growth * growth < min(limits.steps, _MOST_EVEN * end) * squares:
        return None
    if _score(floors, loads, limits) < limits.trend_z:
        return None
    return Rise(
        since=float(level.buckets[start + onset] * level.width),
        until=float(level.buckets[start + end] * level.width),
        base=base,
        growth=growth,
    )


def _score(floors: Sequence[int], loads: Sequence[int] | None, limits: Thresholds) -> float:
    """Mann-Kendall's score over the pairs between which the load did not rise."""
    count, tolerance = len(floors), limits.load_tolerance * LOAD_UNIT
    if loads is None:
        loads = [0] * count
    surplus = comparable = 0
    for later in range(1, count):
        floor, load = floors[later], loads[later] - tolerance
        for earlier in range(later):
            if load <= loads[earlier] or loads[earlier] < 0:
                comparable += 1
                if floor > floors[earlier]:
                    surplus += 1
                elif floor < floors[earlier]:
                    surplus -= 1
    pairs = count * (count - 1) / 2
    if comparable <= limits.comparable_ratio * pairs or surplus < limits.trend_tau * comparable:
        return -inf
    # As if all pairs could be compared and were like those that can.
    variance = count * (count - 1) * (2 * count + 5) / 18
    return (surplus * pairs / comparable - 1) / sqrt(variance)
