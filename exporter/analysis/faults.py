"""What is wrong now, for the log: each fault with the device and the reason."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from exporter.analysis.picture import UNREACHED
from exporter.log import FaultInfo
from exporter.snapshot import Device, Snapshot
from exporter.sources.session import POD_RESOURCES
from exporter.sources.supervisor import STARTING, SourceReport
from exporter.values import FAULTS, Absent

Faults = dict[Hashable, FaultInfo]


class FaultFinder:
    """Finds every fault of a snapshot, by what makes it the same fault at the next poll.

    What has one cause is one fault: a device that is down has no missing values, one that nobody
    reached while its source is down is no fault beside that, and the values that a device begins
    to miss together, for one reason, are told together.
    """

    def __init__(self) -> None:
        self._missing: dict[_Cause, dict[str, frozenset[str]]] = {}

    def find(self, snapshot: Snapshot) -> Faults:
        """The faults of a snapshot that is newer than those before."""
        found: Faults = {}
        down = {device.key.address for device in snapshot.devices if not device.up}
        unreached = {
            device.key.address for device in snapshot.devices if _unreached(device, snapshot)
        }
        for report in snapshot.sources:
            found.update(_of_source(report, down))
        missing: dict[_Cause, dict[str, _Missing]] = {}
        for device in snapshot.devices:
            found.update(_leaks(device))
            if device.up:
                _add_missing(missing, device)
            elif device.key.address not in unreached:
                found["down", device.key.address] = FaultInfo(
                    "device is down", {**_where(device), "reason": device.why_down}
                )
        found.update(self._told_together(missing))
        answering = len({device.key.address for device in snapshot.devices} - down)
        if snapshot.views.get("expected", 0) > answering + len(unreached):
            found["expected", answering] = FaultInfo(
                "fewer GPUs answer than expected",
                {"answering": answering, "expected": snapshot.views["expected"]},
            )
        return found

    def _told_together(self, missing: Mapping[_Cause, Mapping[str, _Missing]]) -> Faults:
        """One fault for the collectors that began to miss values together.

        It has the name of its first collector, so that what comes and goes is one fault, however
        the collectors are mixed.
        """
        found: Faults = {}
        kept, self._missing = self._missing, {}
        for cause, by_collector in missing.items():
            groups = {
                first: members & by_collector.keys()
                for first, members in kept.get(cause, {}).items()
                if members & by_collector.keys()
            }
            new = by_collector.keys() - {name for members in groups.values() for name in members}
            for first in new & groups.keys():
                groups[first] |= {first}
            if new := new - groups.keys():
                groups[min(new)] = frozenset(new)
            self._missing[cause] = groups
            for first, members in groups.items():
                of_group = [(name, by_collector[name]) for name in by_collector if name in members]
                found[("values", *cause, first)] = _told(cause, of_group)
        return found


def faults(snapshot: Snapshot) -> Faults:
    """Every fault of one snapshot alone."""
    return FaultFinder().find(snapshot)


def _unreached(device: Device, snapshot: Snapshot) -> bool:
    """Whether a device is down for no other reason than that its sources are."""
    return device.why_down == UNREACHED and not any(
        report.up and device.key.address in report.devices
        for report in snapshot.sources
        if report.name != POD_RESOURCES
    )


def _leaks(device: Device) -> Faults:
    leaks = device.readings.get("leaks")
    if leaks is None:
        return {}
    return {
        ("leak", device.key, kind): FaultInfo(
            "VRAM leak suspected", {**_where(device), "kind": kind, "evidence": leaks.evidence}
        )
        for kind in ("process", "residue")
        if getattr(leaks, kind)
    }


def _where(device: Device) -> dict[str, object]:
    return {"gpu": device.gpu, "pci_address": device.key.address}


def _of_source(report: SourceReport, down: Set[str]) -> Faults:
    found: Faults = {}
    if not report.up and not report.paused and report.reason != STARTING:
        found["source", report.name, report.reason] = FaultInfo(
            "source is down",
            {"source": report.name, "reason": report.reason, "remedy": report.remedy},
        )
    if report.replaced:
        found["replaced", report.name, report.replaced] = FaultInfo(
            "worker was replaced", {"source": report.name, "reason": report.replaced}
        )
    for address, absent in report.unanswered.items():
        if report.up and address not in down:
            found["unanswered", report.name, address] = FaultInfo(
                "device does not answer a source",
                {"source": report.name, "pci_address": address, "reason": absent.detail},
            )
    for address, answer in report.answers.items():
        for collector, error in answer.errors.items():
            found["reader", report.name, address, collector] = FaultInfo(
                "a reader failed",
                {
                    "source": report.name,
                    "pci_address": address,
                    "collector": collector,
                    "reason": error,
                },
            )
    return found


@dataclass(slots=True)
class _Missing:
    """The values of a collector that a device misses for one reason, and the first of them."""

    device: Device
    first: Absent
    first_field: str
    sources: set[str] = field(default_factory=set)


_Cause = tuple[str, str]
"""The address of a device, and the reason for which it misses values."""


def _told(cause: _Cause, missing: Sequence[tuple[str, _Missing]]) -> FaultInfo:
    first = missing[0][1]
    return FaultInfo(
        "values are missing",
        {
            **_where(first.device),
            "reason": cause[1],
            "collectors": ",".join(sorted(name for name, _ in missing)),
            "sources": ",".join(sorted({source for _, of in missing for source in of.sources})),
            "first_field": first.first_field,
            "detail": first.first.detail,
        },
    )


def _add_missing(missing: dict[_Cause, dict[str, _Missing]], device: Device) -> None:
    for (collector, name, inner), by_source in device.absences.items():
        for source, absent in by_source.items():
            if absent.reason in FAULTS:
                of_cause = missing.setdefault((device.key.address, absent.reason), {})
                values = of_cause.setdefault(
                    collector, _Missing(device, absent, f"{name}[{inner}]" if inner else name)
                )
                values.sources.add(source)
