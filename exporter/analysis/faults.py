"""What is wrong now, for the log: each fault with the device and the reason."""

from __future__ import annotations

from collections.abc import Hashable

from exporter.log import FaultInfo
from exporter.snapshot import Snapshot
from exporter.values import FAULTS


def faults(snapshot: Snapshot) -> dict[Hashable, FaultInfo]:
    """Every fault of a snapshot, by what makes it the same fault at the next poll."""
    found: dict[Hashable, FaultInfo] = {}
    down = {device.key.address for device in snapshot.devices if not device.up}
    for report in snapshot.sources:
        if not report.up and not report.paused:
            found["source", report.name, report.reason] = FaultInfo(
                "source is down",
                {"source": report.name, "reason": report.reason, "remedy": report.remedy},
            )
        for address, absent in report.unanswered.items():
            if report.up and address not in down:
                found["unanswered", report.name, address] = FaultInfo(
                    "device does not answer a source",
                    {"source": report.name, "pci_address": address, "reason": absent.detail},
                )
        for address, answer in report.answers.items():
            for collector, error in answer.errors.items():
                found["reader", report.name, address, collector, error] = FaultInfo(
                    "a reader failed",
                    {
                        "source": report.name,
                        "pci_address": address,
                        "collector": collector,
                        "reason": error,
                    },
                )
    for device in snapshot.devices:
        where = {"gpu": device.gpu, "pci_address": device.key.address}
        if not device.up:
            found["down", device.key.address] = FaultInfo(
                "device is down", {**where, "reason": device.why_down}
            )
            continue
        for (collector, name, inner), by_source in device.absences.items():
            for source, absent in by_source.items():
                if absent.reason in FAULTS:
                    found.setdefault(
                        ("values", device.key, collector, source, absent.reason),
                        FaultInfo(
                            "values are missing",
                            {
                                **where,
                                "collector": collector,
                                "source": source,
                                "reason": absent.reason,
                                "first_field": f"{name}[{inner}]" if inner else name,
                                "detail": absent.detail,
                            },
                        ),
                    )
    if snapshot.views.get("expected", 0) > len({d.key.address for d in snapshot.devices if d.up}):
        up = len({d.key.address for d in snapshot.devices if d.up})
        found["expected", up] = FaultInfo(
            "fewer GPUs answer than expected",
            {"answering": up, "expected": snapshot.views["expected"]},
        )
    return found
