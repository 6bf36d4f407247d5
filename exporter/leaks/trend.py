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
from exporter.leaks.model import Thresholds

WINDOWS = (32, 22, 16, 11, 7)
"""Lengths in buckets, longest first. Below 7, chance alone is monotone too often."""
_RHYTHM = 100 * 3600.0
"""A rise that lasts longer is no rhythm of days and a long weekend."""
_MEMORY = 8 * 86_400.0
"""How far back a level that was held once makes a rise to it nothing new: a week and a day."""

_MOST_EVEN = 0.78
"""A short window need only have so much of the even steps that fit into it."""
_MARGIN = 0.5
"""Standard errors that the load may have risen by more than it seems."""
_SIGNIFICANT = 1.5
"""Standard errors from which on a load does rise."""
_LEAST_LOAD = 0.01
"""A rise of the load below this explains nothing, however significant it is."""


@dataclass(frozen=True, slots=True)
class Rise:
    """A steady rise of a floor.

    Attributes:
        since: when it began.
        until: the end of what is confirmed.
        base, growth: pages at the start, and on top of it at `until`.
        score: Mann-Kendall's standard score.
    """

    since: float
    until: float
    base: int
    growth: int
    score: float

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
        if kept[-2] - kept[0] < pages:
            continue
        for length in WINDOWS:
            start, end = count - length, count - 1 - length // 4
            if start < 0 or kept[end] - kept[start] < pages:
                continue
            began = level.buckets[start] * level.width
            span = level.buckets[-1] * level.width - began
            if began < born or span < limits.span_seconds:
                continue
            base = kept[start]
            if span < _RHYTHM:
                base = max(base, _usual(levels[max(depth, 1) :], born, began, limits))
            found = _steady(level, kept, start, end, base, pages, limits)
            if found is None:
                continue
            # The load over twice the window, since it says more of a slow rhythm.
            if span < _RHYTHM:
                explained = per_load * _load_per_second(level, max(0, start - length))
                if found.bytes_per_second <= explained:
                    continue
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


def _load_per_second(level: Level, start: int) -> float:
    """How fast the load may have changed: least squares, and a margin for its noise.

    Infinite where it certainly changes, since nobody knows what it takes with it: what works at
    night takes more when others take less.
    """
    known = [
        (bucket, load / LOAD_UNIT)
        for bucket, load in zip(level.buckets[start:], level.loads[start:], strict=True)
        if load >= 0
    ]
    count = len(known)
    if count < 4:
        return 0.0
    middle = sum(bucket for bucket, _ in known) / count
    mean = sum(load for _, load in known) / count
    spread = sum((bucket - middle) ** 2 for bucket, _ in known)
    slope = sum((bucket - middle) * (load - mean) for bucket, load in known) / spread
    rest = sum((load - mean - slope * (bucket - middle)) ** 2 for bucket, load in known)
    error = sqrt(rest / (count - 2) / spread)
    slope = abs(slope)
    if slope > _SIGNIFICANT * error and slope * (known[-1][0] - known[0][0]) > _LEAST_LOAD:
        return inf
    return (slope + _MARGIN * error) / level.width


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
    floors = [
        floor
        for level in levels
        for bucket, floor in zip(level.buckets, level.floors, strict=True)
        if oldest <= bucket * level.width <= moment - level.width
    ]
    if not floors:
        return -(1 << 60)
    highest = max(floors)
    return highest + int(limits.swing_ratio * (highest - min(floors)))


def _steady(
    level: Level,
    kept: list[int],
    start: int,
    end: int,
    base: int,
    least: int,
    limits: Thresholds,
) -> Rise | None:
    growth = kept[end] - base
    if growth < least:
        return None
    total = squares = 0
    onset = start
    height = 0
    for index in range(start, end + 1):
        above = max(kept[index] - base, 0)
        step = above - height
        squares += step * step
        total += above
        height = above
        if above * 20 <= growth:
            onset = index
    mean = total / (growth * (end - start + 1))
    if not limits.convexity <= mean <= limits.concavity:
        return None
    if growth * growth < min(limits.steps, _MOST_EVEN * (end - start)) * squares:
        return None
    score = _score(level.floors[start:], level.loads[start:], limits)
    if score < limits.trend_z:
        return None
    return Rise(
        since=float(level.buckets[onset] * level.width),
        until=float(level.buckets[end] * level.width),
        base=base,
        growth=growth,
        score=score,
    )


def _score(floors: Sequence[int], loads: Sequence[int], limits: Thresholds) -> float:
    """Mann-Kendall's score over the pairs between which the load did not rise."""
    count, tolerance = len(floors), limits.load_tolerance * LOAD_UNIT
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
