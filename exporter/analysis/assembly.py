"""Puts readings together, field by field: the first source that reports a value wins.

It also knows which readers are still worth asking: one whose every value comes from a source before
it is left alone until that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from exporter.collectors.base import Collector
from exporter.snapshot import FieldKey
from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import SourceReport
from exporter.values import Absent, FieldValue, Scalar

KEEP_SOURCE = 120.0
"""Seconds for which a counter waits for the source that it comes from before it takes another."""
ASK_AGAIN = 3600.0
"""Seconds after which a source that rests, or a reader left alone, is asked again."""


@dataclass(slots=True)
class Assembled:
    """What all sources together told of one device or partition.

    Attributes:
        values: collector to field to value, absences left out.
        origins, absences: as in `exporter.snapshot.Device`.
        time: when it was read, in seconds of the source's clock.
    """

    values: dict[str, dict[str, Scalar | dict[str, Scalar]]] = field(default_factory=dict)
    origins: dict[FieldKey, str] = field(default_factory=dict)
    absences: dict[FieldKey, dict[str, Absent]] = field(default_factory=dict)
    time: float = 0.0


@dataclass(slots=True)
class _ReaderState:
    """What a reader gave when it was last asked.

    Attributes:
        offered: the fields with a value, by device.
        won: whether one of them was taken from this reader.
        asked, asked_at: whether it has been asked, and when.
    """

    offered: dict[DeviceKey, list[FieldKey]] = field(default_factory=dict)
    won: bool = False
    asked: bool = False
    asked_at: float = 0.0


class Assembly:
    """Assembles polls of the enabled collectors; remembers who won."""

    def __init__(self, collectors: Sequence[Collector[object]]) -> None:
        self._readers: list[tuple[str, Collector[object], str]] = []
        self._states: dict[str, _ReaderState] = {}
        self._found: dict[DeviceKey, Assembled] = {}
        self._counters: dict[tuple[DeviceKey, FieldKey], tuple[str, float]] = {}
        self._rested: dict[str, float] = {}
        self._now = 0.0
        self.apply(collectors)

    def apply(self, collectors: Sequence[Collector[object]]) -> None:
        """Change which collectors are enabled; what is known of the others stays."""
        self._readers = [
            (f"{collector.name}/{number}", collector, reader.source)
            for collector in collectors
            for number, reader in enumerate(collector.readers)
        ]
        self._states = {
            reader: self._states.get(reader, _ReaderState()) for reader, _, _ in self._readers
        }

    def demand(self, source: str) -> tuple[str, ...]:
        """The readers to ask of a source at the next poll; `simulated` stands for all."""
        return tuple(
            reader
            for reader, _, from_source in self._readers
            if source in (from_source, "simulated") and not self._shadowed(reader)
        )

    def _shadowed(self, reader: str) -> bool:
        state = self._states[reader]
        return bool(state.offered) and self._now - state.asked_at < ASK_AGAIN and self._idle(state)

    def _idle(self, state: _ReaderState) -> bool:
        """Whether other readers gave all that this one could give."""
        return not state.won and all(
            device in self._found and self._found[device].origins.keys() >= set(places)
            for device, places in state.offered.items()
        )

    def spared(self, address: str, fields: Set[tuple[str, str]], sources: Set[str]) -> bool:
        """Whether one of these sources, not asked at the latest poll, once gave these fields.

        Args:
            address: of the device.
            fields: collectors and fields.
            sources: those that can be asked at the next poll.
        """
        return any(
            source in sources and state.asked_at != self._now and device.address == address
            for reader, _, source in self._readers
            for state in [self._states[reader]]
            for device, places in state.offered.items()
            if any(place[:2] in fields for place in places)
        )

    def may_rest(self, reports: Sequence[SourceReport], source: str, now: float) -> bool:
        """Whether a source can rest: it won nothing, and all others are up.

        A source that rests is woken when another is down, when a value that it could give has
        lost its winner, and from time to time.
        """
        if any(report.name != source and not (report.up or report.paused) for report in reports):
            return False
        states = [self._states[reader] for reader, _, of in self._readers if of == source]
        if not all(state.asked for state in states):
            return False
        if not all(self._idle(state) for state in states):
            return False
        since = self._rested.setdefault(source, now)
        if now - since > ASK_AGAIN:
            del self._rested[source]
            return False
        return True

    def assemble(self, reports: Sequence[SourceReport], now: float) -> dict[DeviceKey, Assembled]:
        """One poll's answers, by device and partition; `now` is monotonic, in seconds."""
        found: dict[DeviceKey, Assembled] = {}
        left_alone = set(self._states)
        by_source = {report.name: report for report in reports}
        simulated = by_source.get("simulated")
        for reader, collector, source in self._readers:
            report = simulated or by_source.get(source)
            if report is None or report.paused:
                continue
            state = self._states[reader]
            offered: dict[DeviceKey, list[FieldKey]] = {}
            won, asked = False, False
            for address, answer in report.answers.items():
                asked = asked or collector.name in answer.errors
                for partition, by_reader in answer.readings.items():
                    if reader not in by_reader:
                        continue
                    asked = True
                    device = DeviceKey(address, partition or None)
                    assembled = found.setdefault(device, Assembled())
                    assembled.time = max(assembled.time, answer.time)
                    places: list[FieldKey] = []
                    for name, value in by_reader[reader].items():
                        counted = name in collector.counters
                        for inner, item in _items(value):
                            place = (collector.name, name, inner)
                            if isinstance(item, Absent):
                                self._absent(assembled, place, report.name, item)
                                continue
                            places.append(place)
                            if place in assembled.origins:
                                continue
                            if counted and not self._keeps((device, place), reader, now):
                                continue
                            won = True
                            _put(assembled.values, place, item)
                            assembled.origins[place] = report.name
                    if places:
                        offered[device] = places
            if asked:
                state.offered, state.won = offered, won
                state.asked, state.asked_at = True, now
                left_alone.remove(reader)
        if not found.keys() <= self._found.keys():
            for reader in left_alone:  # it may be the one that knows the new device best
                self._states[reader] = _ReaderState()
        self._found, self._now = found, now
        return found

    @staticmethod
    def _absent(assembled: Assembled, place: FieldKey, source: str, absent: Absent) -> None:
        assembled.absences.setdefault(place, {}).setdefault(source, absent)

    def _keeps(self, key: tuple[DeviceKey, FieldKey], reader: str, now: float) -> bool:
        """Whether a counter may come from this reader: it stays with the one that it came from."""
        kept = self._counters.get(key)
        if kept is not None and kept[0] != reader and now - kept[1] < KEEP_SOURCE:
            return False
        self._counters[key] = (reader, now)
        # The difference between two sources is no change: the first value of another is left out.
        return kept is None or kept[0] == reader


def _items(value: FieldValue) -> Iterable[tuple[str, Scalar | Absent]]:
    # A plain dict is told faster than any mapping.
    return value.items() if isinstance(value, (dict, Mapping)) else (("", value),)


def _put(
    values: dict[str, dict[str, Scalar | dict[str, Scalar]]], place: FieldKey, item: Scalar
) -> None:
    collector, name, inner = place
    fields = values.setdefault(collector, {})
    if not inner:
        fields[name] = item
        return
    mapping = fields.setdefault(name, {})
    if isinstance(mapping, dict):
        mapping[inner] = item
