"""From the sources' reports to the snapshot of a poll."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from exporter.analysis.assembly import Assembled, Assembly
from exporter.analysis.derive import Derive
from exporter.analysis.numbering import Numbering
from exporter.collectors.base import Collector
from exporter.snapshot import CollectorHealth, Device, Snapshot
from exporter.sources.session import POD_RESOURCES, DeviceKey
from exporter.sources.supervisor import STARTING, SourceReport
from exporter.values import (
    BUSY,
    ERROR,
    IMPLAUSIBLE,
    NO_ANSWER,
    NOT_PERMITTED,
    SENTINEL,
    STALE,
    Absent,
)

REJECTIONS = (SENTINEL, IMPLAUSIBLE, STALE, BUSY, ERROR, NOT_PERMITTED, NO_ANSWER)
"""Reasons that count as a rejected value; what hardware does not have is not rejected."""
NODE_TEXTS = (
    "driver_version",
    "rocm_version",
    "kernel_version",
    "amdsmi_version",
    "rocm_smi_version",
    "boot_id",
)
"""The labels of amdgpu_node_info."""
VIEWS = ("pci", "drm", "kfd", "amdsmi", "rocm_smi")
UNREACHED = "no source reached it"
"""Why a device is down that no source tells anything of, not even that it has gone."""
_STANDING_STILL = frozenset({"identity", "firmware", "partition", "processes", "allocations"})
"""Collectors that don't show that a device answers: their values are remembered, or not its own."""


class Picture:
    """Builds a snapshot per poll, remembering what rates, counts and numbers need.

    Args:
        collectors: the enabled ones.
        interval: seconds between two polls.
        pace: how much faster than real time the readings' clock runs (a simulated node's).
        settings: configured mappings for derived fields.
        numbering: the numbers of the devices.
    """

    def __init__(
        self,
        collectors: Sequence[Collector[Any]],
        *,
        interval: float,
        settings: Mapping[str, Mapping[str, float]],
        numbering: Numbering,
        pace: float = 1.0,
    ) -> None:
        self.collectors = tuple(collectors)
        self._interval = interval
        self.assembly = Assembly(self.collectors)
        self.derive = Derive(interval * pace, settings)
        self._numbering = numbering
        self._pace = pace
        self._names = frozenset(collector.name for collector in collectors)
        self._rejected: Counter[tuple[str, str]] = Counter()

    def apply(
        self,
        collectors: Sequence[Collector[Any]],
        *,
        interval: float,
        settings: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Take over changed settings; what was counted and added up so far goes on."""
        self.collectors = tuple(collectors)
        self._interval = interval
        self.assembly.apply(self.collectors)
        self.derive.interval = interval * self._pace
        self.derive.settings = settings
        self._names = frozenset(collector.name for collector in collectors)

    def take(
        self,
        reports: Sequence[SourceReport],
        *,
        sequence: int,
        timestamp: float,
        now: float,
        expected: int | None,
        on_boot: Callable[[str | None], None],
    ) -> Snapshot:
        """One poll.

        Args:
            reports: of every source.
            sequence, timestamp, now: number, Unix time and monotonic time of the poll.
            expected: how many GPUs the node should have, if that is configured.
            on_boot: called with the boot's id before devices get their numbers.
        """
        node = _node(reports)
        on_boot(node.get("boot_id"))
        of_devices = [report for report in reports if report.name != POD_RESOURCES]
        # The first source in the order of preference that lists a device names its number.
        listed: dict[str, int] = {}
        for report in of_devices:
            for address, index in report.devices.items():
                listed.setdefault(address, index)
        self._numbering.see(listed)
        found = self.assembly.assemble(reports, now)
        devices: list[Device] = []
        for address, gpu in sorted(self._numbering.numbers().items(), key=lambda item: item[1]):
            keys = [key for key in found if key.address == address]
            down = self._why_down(address, [found[key] for key in keys], of_devices)
            suspended = any(
                report.answers[address].suspended
                for report in of_devices
                if address in report.answers
            )
            for key in sorted(keys, key=_partition_order) or [DeviceKey(address)]:
                devices.append(self._device(key, gpu, found.get(key, Assembled()), down, suspended))
        return Snapshot(
            sequence=sequence,
            timestamp=timestamp,
            interval=self._interval,
            simulated=any(report.name == "simulated" for report in reports),
            devices=tuple(devices),
            sources=tuple(reports),
            node=node,
            views=_views(reports, expected),
            collectors={
                c.name: _health(c, reports, any(c.name in told.values for told in found.values()))
                for c in self.collectors
            },
            rejected={
                (name, reason): self._rejected[name, reason]
                for name in sorted(self._names)
                for reason in REJECTIONS
            },
            resets={name: self.derive.resets[name] for name in sorted(self._names)},
        )

    def _device(
        self, key: DeviceKey, gpu: int, assembled: Assembled, down: str, suspended: bool
    ) -> Device:
        readings: dict[str, Any] = {}
        for collector in self.collectors:
            reading = assembled.readings.get(collector.name)
            if reading is not None:
                readings[collector.name] = self.derive.fill(collector, key, reading, assembled.time)
        for (collector_name, _, _), by_source in assembled.absences.items():
            for absent in by_source.values():
                if absent.reason in REJECTIONS:
                    self._rejected[collector_name, absent.reason] += 1
        return Device(
            key=key,
            gpu=gpu,
            up=not down,
            suspended=suspended,
            why_down=down,
            readings=readings,
            origins=assembled.origins,
            absences={
                place: absent
                for place, absent in assembled.absences.items()
                if place not in assembled.origins
            },
        )

    def _why_down(
        self, address: str, found: Sequence[Assembled], reports: Sequence[SourceReport]
    ) -> str:
        """Why a device does not answer; empty if it does."""
        answered = False
        for report in reports:
            if address in report.unanswered:
                return report.unanswered[address].detail
            if address in report.answers:
                answered = True
                if report.answers[address].suspended:
                    return ""
        if not answered:
            if any(address in report.devices for report in reports) or not any(
                report.up or report.paused for report in reports
            ):
                return UNREACHED
            return "it is no longer listed by any source"
        vital = {(c.name, name) for c in self.collectors for name in c.vital}
        if any(place[:2] in vital for assembled in found for place in assembled.origins):
            return ""
        failure = next(_failures(found, vital), None)
        able = {r.name for r in reports if r.up or r.paused or r.reason == STARTING}
        if failure is not None and self.assembly.spared(address, vital, able):
            return ""  # another source may give them at the next poll
        judged = self._names - _STANDING_STILL or self._names
        if failure is None and any(assembled.values.keys() & judged for assembled in found):
            return ""
        failure = failure or next(_failures(found), None)
        return "every reading failed" + (f", the first: {failure.detail}" if failure else "")


def _failures(
    found: Sequence[Assembled], only: Set[tuple[str, str]] | None = None
) -> Iterator[Absent]:
    for assembled in found:
        for place, by_source in assembled.absences.items():
            for absent in by_source.values():
                if absent.reason in (ERROR, STALE, BUSY, NOT_PERMITTED) and (
                    only is None or place[:2] in only
                ):
                    yield absent


def _partition_order(key: DeviceKey) -> tuple[int, str]:
    """The whole device first, then the partitions by number, then what they share."""
    if key.partition is None:
        return -1, ""
    return (int(key.partition), "") if key.partition.isdigit() else (1 << 30, key.partition)


def _node(reports: Sequence[SourceReport]) -> dict[str, str]:
    node: dict[str, str] = {}
    for name in NODE_TEXTS:
        for report in reports:
            value = report.node.get(name)
            if isinstance(value, str):
                node.setdefault(name, value)
    return node


def _views(reports: Sequence[SourceReport], expected: int | None) -> dict[str, int]:
    views: dict[str, int] = {}
    for view in VIEWS:
        for report in reports:
            count = report.node.get(f"devices_{view}")
            if isinstance(count, int) and report.up:
                views.setdefault(view, count)
    if expected is not None:
        views["expected"] = expected
    return views


def _health(
    collector: Collector[Any], reports: Sequence[SourceReport], given: bool
) -> CollectorHealth:
    """A collector after a poll; `given` says whether any value of it was."""
    seconds: float | None = None
    success = True
    ran: set[str] = set()
    for report in reports:
        if report.up and not report.devices.keys() <= report.answers.keys():
            success = False
        for answer in report.answers.values():
            success = success and collector.name not in answer.errors
            if collector.name in answer.durations:
                seconds = (seconds or 0.0) + answer.durations[collector.name]
                ran.add(report.name)
    if not given:
        down = {report.name for report in reports if not (report.up or report.paused)}
        wanted: list[str] = [reader.source for reader in collector.readers]
        if wanted and any(report.name == "simulated" for report in reports):
            wanted = ["simulated"]
        # Where one that ran comes before those that are down, there is nothing to be given.
        success = success and next((s not in down for s in wanted if s in ran | down), True)
    return CollectorHealth(success, seconds)
