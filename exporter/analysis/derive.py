"""Derived fields: rates, shares and sums over time, between two polls of the same device.

Time is the readings' own, so simulated time may run faster. A counter that goes backwards is a
reset: nothing is derived from that step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.collectors.base import Collector, Integral, Rate, Setting, Share
from exporter.sources.session import DeviceKey

GAP = 3.0
"""Polls without a reading after which the time in between counts as not observed."""


@dataclass(slots=True)
class _Memory:
    """A device's last reading of one collector, as told and as filled, its time, and the sums."""

    told: Any = None
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
        if not collector.derived and not collector.counters:
            return reading
        memory = self._memory.get((key, collector.name))
        if memory is None:
            memory = self._memory[key, collector.name] = _Memory()
        elapsed = time - memory.time
        if memory.reading is None or not 0 < elapsed <= GAP * self.interval:
            before, elapsed = None, 0.0
        else:
            before = memory.reading
        told = reading
        changes: dict[str, Any] = {}
        if before is not None and reading is not memory.told:
            for name in collector.counters:
                changes[name], backwards = _changes(getattr(before, name), getattr(reading, name))
                self.resets[collector.name] += backwards
        derived: dict[str, Any] = {}
        for rule in collector.derived:
            if isinstance(rule, Setting):
                value = self._chosen(rule, reading)
            elif isinstance(rule, Integral):
                level = derived.get(rule.of, getattr(reading, rule.of))
                value = _add_up(rule, level, elapsed, memory)
            elif before is None:
                continue
            else:
                value = _quotient(rule, reading, before, elapsed, changes)
            if value is not None:
                derived[rule.into] = value
        if derived:
            reading = replace(reading, **derived)
        memory.reading, memory.time, memory.told = reading, time, told
        return reading

    def _chosen(self, rule: Setting, reading: Any) -> Mapping[str, float] | None:
        """What is configured for the keys that need it; None where nothing is."""
        configured = self.settings.get(rule.name)
        if not configured:
            return None
        given = getattr(reading, rule.unless)
        return {
            key: configured[key]
            for key in getattr(reading, rule.where)
            if key in configured and key not in given
        }


def _quotient(
    rule: Rate | Share, reading: Any, before: Any, elapsed: float, changes: Mapping[str, Any]
) -> Any:
    """A rate or a share; None where there is none."""
    change = (
        changes[rule.of]
        if rule.of in changes
        else _changes(getattr(before, rule.of), getattr(reading, rule.of))[0]
    )
    span: float | None = elapsed
    if isinstance(rule, Share):
        span = _change(getattr(before, rule.over), getattr(reading, rule.over))
    elif rule.clock is not None:
        span = _change(getattr(before, rule.clock), getattr(reading, rule.clock)) or elapsed
    if not span or change is None:
        return None
    high = 1.0 if isinstance(rule, Share) else float("inf")
    if isinstance(change, dict):
        return {key: min(value / span, high) for key, value in change.items()}
    return min(change / span, high)


def _add_up(rule: Integral, level: Any, elapsed: float, memory: _Memory) -> Any:
    """The level, or each in a mapping, added up; None where there is none."""
    if level is None or level == {}:
        return None
    sums = memory.sums.get(rule.into)
    if isinstance(level, (dict, Mapping)):  # a plain dict is told faster
        sums = dict(sums or {})
        for key, value in level.items():
            sums[key] = sums.get(key, 0.0) + value * elapsed
        shown: Any = {key: sums[key] for key in level}
    else:
        sums = shown = (sums or 0.0) + level * elapsed
    memory.sums[rule.into] = sums
    return shown


def _change(before: float | None, now: float | None) -> float | None:
    """How much a counter grew; None if it went backwards or is not known."""
    if before is None or now is None or now < before:
        return None
    return now - before


def _changes(before: Any, now: Any) -> tuple[Any, int]:
    """The change of a counter, or of each in a mapping, and how many went backwards."""
    if not isinstance(now, (dict, Mapping)):
        change = _change(before, now)
        return change, int(change is None and before is not None and now is not None)
    grown: dict[str, float] = {}
    backwards = 0
    for key, value in now.items():
        if key in before:
            if value < before[key]:
                backwards += 1
            else:
                grown[key] = value - before[key]
    return grown, backwards
