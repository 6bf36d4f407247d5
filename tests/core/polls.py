"""Polls written by hand: what the supervisor reports, without a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import Picture
from exporter.collectors.base import Collector, Derivation, Metric, NodeMetric, Reader, SourceName
from exporter.snapshot import CollectorHealth, Device, Snapshot
from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import Answer, SourceReport
from exporter.values import NO_ANSWER, Absent, FieldValue

from .nodes import ADDRESS

Readings = Mapping[str, Mapping[str, FieldValue]]
"""Reader id to its fields."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A domain made up for tests.

    Attributes:
        count, counts: accumulate.
        level, levels: go up and down.
        ticks, clock: time, as the hardware counts it.
        the others: derived.
    """

    count: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    level: float | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    ticks: float | None = None
    clock: float | None = None
    rate: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    share: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    total: float | None = None
    totals: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    fallback: Mapping[str, float] = field(default_factory=dict)


def unread(_: object) -> Mapping[str, FieldValue]:
    """What no test of polls calls."""
    raise AssertionError("no device is read here")


def domain(
    *derived: Derivation,
    sources: Sequence[SourceName] = ("amdsmi", "rocm_smi", "sysfs"),
    name: str = "domain",
    metrics: tuple[Metric[Reading], ...] = (),
    node_metrics: tuple[NodeMetric[Reading], ...] = (),
    vital: tuple[str, ...] = (),
) -> Collector[Any]:
    """A collector of that domain: reader 0 is of the first source, and so on."""
    return Collector(
        name=name,
        summary="made up",
        reading=Reading,
        readers=tuple(Reader(source, unread) for source in sources),
        metrics=metrics,
        derived=derived,
        node_metrics=node_metrics,
        counters=("count", "counts", "ticks"),
        vital=vital,
    )


def answer(
    readings: Readings | None = None,
    *,
    time: float = 0.0,
    partitions: Mapping[str, Readings] | None = None,
    suspended: bool = False,
    errors: Mapping[str, str] | None = None,
    durations: Mapping[str, float] | None = None,
) -> Answer:
    """What a source says of one device."""
    by_partition = {**({"": readings} if readings is not None else {}), **(partitions or {})}
    return Answer(time, suspended, by_partition, durations or {}, errors or {})


def report(
    name: str,
    answers: Mapping[str, Answer] | None = None,
    *,
    devices: Sequence[str] | None = None,
    up: bool = True,
    paused: bool = False,
    node: Mapping[str, FieldValue] | None = None,
    unanswered: Mapping[str, str] | None = None,
    reason: str = "",
) -> SourceReport:
    """A source after a poll; it lists the devices that it answers for."""
    listed = devices if devices is not None else list(answers or {})
    return SourceReport(
        name=name,
        up=up,
        paused=paused,
        reason=reason,
        remedy="do something" if reason else "",
        node=node or {},
        devices={address: index for index, address in enumerate(listed)},
        answers=answers or {},
        unanswered={a: Absent(NO_ANSWER, why) for a, why in (unanswered or {}).items()},
        restarts={"crash": 0, "hang": 2},
        usage=None,
        abandoned=0,
    )


def one(name: str, readings: Readings, *, time: float = 0.0) -> SourceReport:
    """A source that lists one device and answers for it."""
    return report(name, {ADDRESS: answer(readings, time=time)})


class Polls:
    """Poll after poll through one `Picture`, five seconds apart."""

    def __init__(
        self,
        *collectors: Collector[Any],
        numbering: Numbering | None = None,
        settings: Mapping[str, Mapping[str, float]] | None = None,
        expected: int | None = None,
    ) -> None:
        self.picture = Picture(
            collectors,
            interval=5.0,
            settings=settings or {},
            numbering=numbering or Numbering(None),
        )
        self.expected = expected
        self.boots: list[str | None] = []
        self._sequence = 0

    def take(self, *reports: SourceReport) -> Snapshot:
        """The next poll."""
        self._sequence += 1
        return self.picture.take(
            reports,
            sequence=self._sequence,
            timestamp=1_700_000_000.0 + 5 * self._sequence,
            now=5.0 * self._sequence,
            expected=self.expected,
            on_boot=self.boots.append,
        )


def snapshot(*devices: Device, sources: Sequence[SourceReport] = (), **changes: Any) -> Snapshot:
    """A snapshot with these devices."""
    given: dict[str, Any] = {
        "sequence": 1,
        "timestamp": 1_700_000_000.0,
        "interval": 5.0,
        "simulated": False,
        "node": {},
        "views": {"pci": len(devices)},
        "collectors": {"domain": CollectorHealth(True, 0.25)},
        "rejected": {("domain", "error"): 0},
        "resets": {"domain": 0},
        **changes,
    }
    return Snapshot(devices=devices, sources=tuple(sources), **given)


def device(
    readings: Mapping[str, Any] | None = None,
    *,
    address: str = ADDRESS,
    gpu: int = 0,
    partition: str | None = None,
    why_down: str = "",
    suspended: bool = False,
    origins: Mapping[tuple[str, str, str], str] | None = None,
    absences: Mapping[tuple[str, str, str], Mapping[str, Absent]] | None = None,
) -> Device:
    """A device after a poll."""
    return Device(
        key=DeviceKey(address, partition),
        gpu=gpu,
        up=not why_down,
        suspended=suspended,
        why_down=why_down,
        readings=readings or {},
        origins=origins or {},
        absences=absences or {},
    )
