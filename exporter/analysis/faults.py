"""What is wrong now, for the log: each fault with the device and the reason."""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import dataclass, field

from exporter.log import FaultInfo
from exporter.snapshot import Device, Snapshot
from exporter.sources.supervisor import STARTING, SourceReport
from exporter.values import FAULTS, Absent

Faults = dict[Hashable, FaultInfo]


def faults(snapshot: Snapshot) -> Faults:
    """Every fault of a snapshot, by what makes it the same fault at the next poll.

    What has one cause is one fault: a device that is down has no missing values, and the values
    that a device misses for one reason are told together.
    """
    found: Faults = {}
    down = {device.key.address for device in snapshot.devices if not device.up}
    for report in snapshot.sources:
        found.update(_of_source(report, down))
    missing: dict[tuple[str, str], _Missing] = {}
    for device in snapshot.devices:
        found.update(_leaks(device))
        if device.up:
            _add_missing(missing, device)
        else:
            found["down", device.key.address] = FaultInfo(
                "device is down", {**_where(device), "reason": device.why_down}
            )
    found.update({("values", *key): values.told() for key, values in missing.items()})
    answering = len({device.key.address for device in snapshot.devices} - down)
    if snapshot.views.get("expected", 0) > answering:
        found["expected", answering] = FaultInfo(
            "fewer GPUs answer than expected",
            {"answering": answering, "expected": snapshot.views["expected"]},
        )
    return found


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
    """The values that a device misses for one reason."""

    device: Device
    first: Absent
    first_field: str
    collectors: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)

    def told(self) -> FaultInfo:
        return FaultInfo(
            "values are missing",
            {
                **_where(self.device),
                "reason": self.first.reason,
                "collectors": ",".join(sorted(self.collectors)),
                "sources": ",".join(sorted(self.sources)),
                "first_field": self.first_field,
                "detail": self.first.detail,
            },
        )


def _add_missing(missing: dict[tuple[str, str], _Missing], device: Device) -> None:
    for (collector, name, inner), by_source in device.absences.items():
        for source, absent in by_source.items():
            if absent.reason in FAULTS:
                values = missing.setdefault(
                    (device.key.address, absent.reason),
                    _Missing(device, absent, f"{name}[{inner}]" if inner else name),
                )
                values.collectors.add(collector)
                values.sources.add(source)
