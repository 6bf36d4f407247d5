"""Puts readings together, field by field: the first source that reports a value wins.

It also knows which readers are still worth asking: one whose every value comes from a source before
it is left alone until that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from exporter.collectors.base import Collector
from exporter.snapshot import FieldKey
from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import SourceReport
from exporter.values import Absent, Fields, FieldValue, Scalar

KEEP_SOURCE = 120.0
"""Seconds for which a counter waits for the source that it comes from before it takes another."""
ASK_AGAIN = 3600.0
"""Seconds after which a source that rests, or a reader left alone, is asked again."""


@dataclass(slots=True)
class Assembled:
    """What all sources together told of one device or partition.

    Attributes:
        values: collector to field to value, absences left out.
        readings: by collector, the same as its reading; the very same object as in the poll before
            where nothing has changed.
        origins, absences: as in `exporter.snapshot.Device`.
        time: when it was read, in seconds of the source's clock.
    """

    values: dict[str, dict[str, Scalar | dict[str, Scalar]]] = field(default_factory=dict)
    readings: dict[str, Any] = field(default_factory=dict)
    origins: dict[FieldKey, str] = field(default_factory=dict)
    absences: dict[FieldKey, dict[str, Absent]] = field(default_factory=dict)
    time: float = 0.0


_Kept = dict[FieldKey, tuple[str, float]]
"""The reader that a counter comes from, and when it gave it last."""
_Told = list[tuple[str, str, Fields]]
"""Readers in order of preference, each with its source and the fields that it gave."""


@dataclass(slots=True)
class _Part:
    """What one collector's readers gave of a device, put together.

    Attributes:
        told: by whom.
        values, reading, origins, absences: as in `Assembled`.
        offered: the fields with a value, by reader.
        won: the readers from which one of them was taken.
        counters: those that were taken, and the reader.
        settled: the same answers would be put together the same way again.
    """

    told: _Told
    values: dict[str, Scalar | dict[str, Scalar]] = field(default_factory=dict)
    reading: Any = None
    origins: dict[FieldKey, str] = field(default_factory=dict)
    absences: dict[FieldKey, dict[str, Absent]] = field(default_factory=dict)
    offered: dict[str, set[FieldKey]] = field(default_factory=dict)
    won: set[str] = field(default_factory=set)
    counters: dict[FieldKey, str] = field(default_factory=dict)
    settled: bool = True


@dataclass(slots=True)
class _ReaderState:
    """What a reader gave when it was last asked.

    Attributes:
        collector: whose reader it is.
        offered: the fields with a value, by device.
        won: whether one of them was taken from this reader.
        asked, asked_at: whether it has been asked, and when.
        outdone_by: what gave all that it offered, by device, as last found out.
    """

    collector: str
    offered: dict[DeviceKey, set[FieldKey]] = field(default_factory=dict)
    won: bool = False
    asked: bool = False
    asked_at: float = 0.0
    outdone_by: dict[DeviceKey, _Part] = field(default_factory=dict)


class Assembly:
    """Assembles polls of the enabled collectors; remembers who won."""

    def __init__(self, collectors: Sequence[Collector[object]]) -> None:
        self._readers: list[tuple[str, Collector[object], str]] = []
        self._collectors: list[tuple[Collector[object], list[tuple[str, str]]]] = []
        self._parts: dict[tuple[DeviceKey, str], _Part] = {}
        self._states: dict[str, _ReaderState] = {}
        self._found: dict[DeviceKey, Assembled] = {}
        self._counters: dict[tuple[DeviceKey, str], _Kept] = {}
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
        self._collectors = [
            (collector, [(reader, of) for reader, its, of in self._readers if its is collector])
            for collector in collectors
        ]
        self._states = {
            reader: self._states.get(reader) or _ReaderState(collector.name)
            for reader, collector, _ in self._readers
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
            self._outdone(state, device, places) for device, places in state.offered.items()
        )

    def _outdone(self, state: _ReaderState, device: DeviceKey, places: Set[FieldKey]) -> bool:
        part = self._parts.get((device, state.collector))
        if part is None:
            return False
        if state.outdone_by.get(device) is not part:  # a part is the same while nothing changes
            if not part.origins.keys() >= places:
                return False
            state.outdone_by[device] = part
        return True

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
        heard = {report.name: report for report in reports if not report.paused}
        simulated = any(report.name == "simulated" for report in reports)
        failed = {
            name: {collector for answer in report.answers.values() for collector in answer.errors}
            for name, report in heard.items()
        }
        views = {
            name: [
                (DeviceKey(address, partition or None), by_reader)
                for address, answer in report.answers.items()
                for partition, by_reader in answer.readings.items()
            ]
            for name, report in heard.items()
        }
        found: dict[DeviceKey, Assembled] = {}
        parts: dict[tuple[DeviceKey, str], _Part] = {}
        left_alone = set(self._states)
        for collector, readers in self._collectors:
            told: dict[DeviceKey, _Told] = {}
            asked: set[str] = set()
            for reader, source in readers:
                name = "simulated" if simulated else source
                if name not in heard:
                    continue
                if collector.name in failed[name]:
                    asked.add(reader)
                for device, by_reader in views[name]:
                    fields = by_reader.get(reader)
                    if fields is not None:
                        asked.add(reader)
                        told.setdefault(device, []).append((reader, name, fields))
            for reader in asked:
                self._states[reader] = _ReaderState(collector.name, asked=True, asked_at=now)
            left_alone -= asked
            for device, by_whom in told.items():
                part = self._part(collector, device, by_whom, now)
                parts[device, collector.name] = part
                for reader, places in part.offered.items():
                    self._states[reader].offered[device] = places
                for reader in part.won:
                    self._states[reader].won = True
                assembled = found.get(device)
                if assembled is None:
                    assembled = found[device] = Assembled(time=_read_at(device, heard.values()))
                if part.values:
                    assembled.values[collector.name] = part.values
                    assembled.readings[collector.name] = part.reading
                assembled.origins.update(part.origins)
                assembled.absences.update(part.absences)
        if not found.keys() <= self._found.keys():
            for reader in left_alone:  # it may be the one that knows the new device best
                self._states[reader] = _ReaderState(self._states[reader].collector)
        self._found, self._parts, self._now = found, parts, now
        return found

    def _part(
        self, collector: Collector[object], device: DeviceKey, told: _Told, now: float
    ) -> _Part:
        """What is told of a device, put together; as before where it was told before."""
        before = self._parts.get((device, collector.name))
        kept = self._counters.setdefault((device, collector.name), {})
        # Fields that have not changed are the very same objects, which makes this quick.
        if before is not None and before.settled and before.told == told:
            for place, reader in before.counters.items():
                kept[place] = reader, now
            return before
        part = _Part(told)
        for reader, source, fields in told:
            places: set[FieldKey] = set()
            for name, value in fields.items():
                counted = name in collector.counters
                for inner, item in _items(value):
                    place = (collector.name, name, inner)
                    if isinstance(item, Absent):
                        part.absences.setdefault(place, {}).setdefault(source, item)
                        continue
                    places.add(place)
                    if place in part.origins:
                        continue
                    if counted and not _keeps(kept, place, reader, now):
                        part.settled = False
                        continue
                    if counted:
                        part.counters[place] = reader
                    part.won.add(reader)
                    _put(part.values, place, item)
                    part.origins[place] = source
            if places:
                part.offered[reader] = places
        if part.values:
            part.reading = collector.reading(**part.values)
        return part


def _read_at(device: DeviceKey, reports: Iterable[SourceReport]) -> float:
    """When a device was read: by the source that was the last to do it."""
    return max(
        answer.time
        for report in reports
        for answer in [report.answers.get(device.address)]
        if answer is not None and (device.partition or "") in answer.readings
    )


def _keeps(kept: _Kept, place: FieldKey, reader: str, now: float) -> bool:
    """Whether a counter may come from this reader: it stays with the one that it came from."""
    before = kept.get(place)
    if before is not None and before[0] != reader and now - before[1] < KEEP_SOURCE:
        return False
    kept[place] = (reader, now)
    # The difference between two sources is no change: the first value of another is left out.
    return before is None or before[0] == reader


def _items(value: FieldValue) -> Iterable[tuple[str, Scalar | Absent]]:
    # A plain dict is told faster than any mapping.
    return value.items() if isinstance(value, (dict, Mapping)) else (("", value),)


def _put(fields: dict[str, Scalar | dict[str, Scalar]], place: FieldKey, item: Scalar) -> None:
    _, name, inner = place
    if not inner:
        fields[name] = item
        return
    mapping = fields.setdefault(name, {})
    if isinstance(mapping, dict):
        mapping[inner] = item
