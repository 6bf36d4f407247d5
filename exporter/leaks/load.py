"""What the load explains of a floor that moves."""

from __future__ import annotations

from math import sqrt

from exporter.leaks.floors import LOAD_UNIT, Level

_MARGIN = 0.5
"""Standard errors that the load may have changed by more than it seems."""
_SIGNIFICANT = 1.5
"""Standard errors from which on a load does change."""
_CERTAIN = 2.5
"""The same for the shorter line."""
_LOADED = 4.0
"""How much more such a load may take with it than one that may only be noise."""
_LEAST_RANGE = 0.2
"""A load that changes by less than this has no say in a day's floors."""
_MOST_ALIKE = 0.4
"""Squared correlation of load and time above which their shares can't be told apart."""
_LEAST_EXPLAINED = 0.7
"""What the load must explain of the floors, beyond their drift, to be taken off them."""


def load_per_second(level: Level, start: int, length: int) -> float:
    """How fast the load may have changed in a window, in either direction.

    What works at night takes more when others take less. The line through twice the window knows
    more of a slow rhythm; the line through the window alone sees the turn of one.

    Args:
        level: whose loads.
        start: where the window begins.
        length: how many buckets the window has.
    """
    long, error = _line(level, max(0, start - length))
    short, short_error = _line(level, start)
    if long > _SIGNIFICANT * error:
        long *= _LOADED
    change = long + _MARGIN * error
    if short > _CERTAIN * short_error:
        change = max(change, _LOADED * short)
    return change / level.width


def _line(level: Level, start: int) -> tuple[float, float]:
    """Slope of the load per bucket, without its sign, and its standard error; least squares."""
    known = [
        (bucket, load / LOAD_UNIT)
        for bucket, load in zip(level.buckets[start:], level.loads[start:], strict=True)
        if load >= 0
    ]
    count = len(known)
    if count < 4:
        return 0.0, 0.0
    middle = sum(bucket for bucket, _ in known) / count
    mean = sum(load for _, load in known) / count
    spread = sum((bucket - middle) ** 2 for bucket, _ in known)
    slope = sum((bucket - middle) * (load - mean) for bucket, load in known) / spread
    rest = sum((load - mean - slope * (bucket - middle)) ** 2 for bucket, load in known)
    return abs(slope), sqrt(rest / (count - 2) / spread)


def without_load(level: Level, start: int) -> list[int] | None:
    """The floors of a window less what follows the load; None where the load explains little.

    Least squares of the floors on the load and on time, over a window in which the load goes up
    and down, so that the two can be told apart.
    """
    loads, floors, buckets = level.loads[start:], level.floors[start:], level.buckets[start:]
    if min(loads) < 0 or max(loads) - min(loads) < _LEAST_RANGE * LOAD_UNIT:
        return None
    count = len(loads)
    load_mean, floor_mean = sum(loads) / count, sum(floors) / count
    middle = sum(buckets) / count
    a = [load - load_mean for load in loads]
    t = [bucket - middle for bucket in buckets]
    m = [floor - floor_mean for floor in floors]
    aa, tt, at = _dot(a, a), _dot(t, t), _dot(a, t)
    if at * at > _MOST_ALIKE * aa * tt:
        return None
    am, tm, mm = _dot(a, m), _dot(t, m), _dot(m, m)
    determinant = aa * tt - at * at
    per_load = (am * tt - tm * at) / determinant
    unexplained = mm - tm * tm / tt
    explained = per_load * per_load * determinant / tt
    if per_load <= 0 or explained < _LEAST_EXPLAINED * unexplained:
        return None
    return [round(floor - per_load * load) for floor, load in zip(floors, a, strict=True)]


def _dot(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))
