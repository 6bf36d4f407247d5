"""Three public practices, as people put them into alert rules, over the same samples.

They see the memory in use alone and know no kinds, so that any alarm after a leak has begun counts
for them. Like rules with a `for`, they must hold for a quarter of an hour and two samples.

- predict_linear: `predict_linear(used[6h], 24 * 3600) > total`, as rules for file systems do.
- deriv: `deriv(used[1h])` above 0.5 % of the VRAM per hour, half of the leak that must be named.
- ols: least squares over 2 hours with R² of at least 0.7, and the same least slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from exporter.leaks import Sample

HOLD = 900.0
_LEAST = 0.005 / 3600
_HORIZON = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Line:
    """A least squares line through the samples of a window, at its end."""

    level: float
    slope: float
    fit: float
    total: float


RULES: dict[str, tuple[float, Callable[[Line], bool]]] = {
    "predict_linear": (
        6 * 3600.0,
        lambda line: line.level + line.slope * _HORIZON > line.total,
    ),
    "deriv": (3600.0, lambda line: line.slope > _LEAST * line.total),
    "ols": (2 * 3600.0, lambda line: line.slope > _LEAST * line.total and line.fit >= 0.7),
}
"""Name to window in seconds, and when it alarms."""


def alarms(name: str, samples: Sequence[Sample]) -> list[float]:
    """The times at which a practice alarms, once per alarm."""
    window, rule = RULES[name]
    ordered = sorted(samples, key=lambda sample: sample.time_seconds)
    first = ordered[0].time_seconds
    times = [sample.time_seconds - first for sample in ordered]
    used = [sample.vram_used_bytes / 1e9 for sample in ordered]
    sums = [
        [0.0, *accumulate(values)]
        for values in (
            times,
            used,
            [time * time for time in times],
            [time * value for time, value in zip(times, used, strict=True)],
            [value * value for value in used],
        )
    ]
    found, start, since, count, told = [], 0, None, 0, False
    for index, sample in enumerate(ordered):
        while times[start] < times[index] - window:
            start += 1
        line = _line([s[index + 1] - s[start] for s in sums], index + 1 - start, times[index])
        holds = line is not None and rule(
            Line(line[0] * 1e9, line[1] * 1e9, line[2], sample.vram_total_bytes)
        )
        if not holds:
            since = None
            continue
        if since is None:
            since, count, told = times[index], 0, False
        count += 1
        if not told and count >= 2 and times[index] - since >= HOLD:
            told = True
            found.append(sample.time_seconds)
    return found


def _line(sums: list[float], count: int, at: float) -> tuple[float, float, float] | None:
    """Level at a time, slope, and R²."""
    if count < 2:
        return None
    t, v, tt, tv, vv = sums
    spread = tt - t * t / count
    if spread <= 1e-9 * tt:
        return None
    slope = (tv - t * v / count) / spread
    total = vv - v * v / count
    fit = slope * slope * spread / total if total > 1e-12 else 0.0
    return v / count + slope * (at - t / count), slope, fit
