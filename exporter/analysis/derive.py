"""Derived fields: rates, shares and sums over time, between two polls of the same device.

Time is the readings' own, so simulated time may run faster. A counter that goes backwards is a
reset: nothing is derived from that step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.collectors.base import Collector, Derivation, Integral, Setting, Share
from exporter.sources.session import DeviceKey

GAP = 3.0
"""Polls without a reading after which the time in between counts as not observed."""


@dataclass(slots=True)
class _Memory:
    """A device's last reading of one collector, its time, and the sums so far."""

    reading: Any = None
    time: float = 0.0
    sums: dict[str, Any] = field(default_factory=dict)


class Derive:
    """Fills the derived fields of readings, poll after poll.

    Args:
        interval: seconds between two polls, on the readings' clock.
        settings: configured mappings by name, for `Setting`.
    """

    def __init__(self, interval: float, settings: Mapping[str, Mapping[str, float]]) -> None:
        self.interval = interval
        self.settings = settings
        self.resets: Counter[str] = Counter()
        self._memory: dict[tuple[DeviceKey, str], _Memory] = {}

    def fill(self, collector: Collector[Any], key: DeviceKey, reading: Any, time: float) -> Any:
        """The reading with its derived fields, from it and the one before."""
        memory = self._memory.setdefault((key, collector.name), _Memory())
        elapsed = time - memory.time
        if memory.reading is None or not 0 < elapsed <= GAP * self.interval:
            before, elapsed = None, 0.0
        else:
            before = memory.reading
        if before is not None:
            self._count_resets(collector, before, reading)
        for derivation in collector.derived:
            reading = self._derive(derivation, reading, before, elapsed, memory)
        memory.reading, memory.time = reading, time
        return reading

    def _count_resets(self, collector: Collector[Any], before: Any, now: Any) -> None:
        for name in collector.counters:
            _, backwards = _changes(getattr(before, name), getattr(now, name))
            self.resets[collector.name] += backwards

    def _derive(
        self, rule: Derivation, reading: Any, before: Any, elapsed: float, memory: _Memory
    ) -> Any:
        if isinstance(rule, Setting):
            configured = self.settings.get(rule.name, {})
            given = getattr(reading, rule.unless)
            chosen = {
                key: configured[key]
                for key in getattr(reading, rule.where)
                if key in configured and key not in given
            }
            return replace(reading, **{rule.into: chosen})
        if isinstance(rule, Integral):
            return self._integrate(rule, reading, elapsed, memory)
        if before is None:
            return reading
        changes, _ = _changes(getattr(before, rule.of), getattr(reading, rule.of))
        span: float | None = elapsed
        if isinstance(rule, Share):
            span = _change(getattr(before, rule.over), getattr(reading, rule.over))
        elif rule.clock is not None:
            span = _change(getattr(before, rule.clock), getattr(reading, rule.clock)) or elapsed
        if not span:
            return reading
        high = 1.0 if isinstance(rule, Share) else float("inf")
        divisor = span
        quotient = _map(changes, lambda change: min(change / divisor, high))
        return reading if quotient is None else replace(reading, **{rule.into: quotient})

    @staticmethod
    def _integrate(rule: Integral, reading: Any, elapsed: float, memory: _Memory) -> Any:
        level = getattr(reading, rule.of)
        if level is None or level == {}:
            return reading
        sums = memory.sums.get(rule.into)
        if isinstance(level, Mapping):
            sums = dict(sums or {})
            for key, value in level.items():
                sums[key] = sums.get(key, 0.0) + value * elapsed
            shown: Any = {key: sums[key] for key in level}
        else:
            sums = shown = (sums or 0.0) + level * elapsed
        memory.sums[rule.into] = sums
        return replace(reading, **{rule.into: shown})


def _change(before: float | None, now: float | None) -> float | None:
    """How much a counter grew; None if it went backwards or is not known."""
    if before is None or now is None or now < before:
        return None
    return now - before


def _changes(before: Any, now: Any) -> tuple[Any, int]:
    """The changes of a counter, or of each in a mapping, and how many went backwards."""
    if not isinstance(now, Mapping):
        change = _change(before, now)
        return change, int(change is None and before is not None and now is not None)
    both = [key for key in now if key in before]
    changes = {key: _change(before[key], now[key]) for key in both}
    grown = {key: change for key, change in changes.items() if change is not None}
    return grown, len(both) - len(grown)


def _map(changes: Any, apply: Callable[[float], float]) -> Any:
    if isinstance(changes, Mapping):
        return {key: apply(change) for key, change in changes.items()}
    return None if changes is None else apply(changes)
