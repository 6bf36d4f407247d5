"""The snapshot as JSON, the same picture that the metrics page shows."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from exporter import __version__
from exporter.snapshot import Device, Snapshot
from exporter.sources.supervisor import SourceReport


def _device(device: Device) -> dict[str, Any]:
    return {
        "gpu": device.gpu,
        "pci_address": device.key.address,
        "partition": device.key.partition,
        "up": device.up,
        "suspended": device.suspended,
        "why_down": device.why_down or None,
        "readings": {name: asdict(reading) for name, reading in device.readings.items()},
    }


def source(report: SourceReport) -> dict[str, Any]:
    """What is told about a source, here and in the support report."""
    return {
        "name": report.name,
        "up": report.up,
        "resting": report.paused,
        "reason": report.reason or None,
        "remedy": report.remedy or None,
        "devices": len(report.devices),
        "node": {name: value for name, value in report.node.items() if isinstance(value, str)},
        "unanswered": {a: absent.detail for a, absent in report.unanswered.items()},
        "restarts": {reason: count for reason, count in report.restarts.items() if count},
        "abandoned_workers": report.abandoned,
    }


def snapshot_json(snapshot: Snapshot) -> bytes:
    """The whole snapshot; a value that was not read is null or missing."""
    document = {
        "version": __version__,
        "simulated": snapshot.simulated,
        "timestamp_seconds": snapshot.timestamp,
        "poll": snapshot.sequence,
        "poll_interval_seconds": snapshot.interval,
        "node": dict(snapshot.node),
        "devices_by_view": dict(snapshot.views),
        "devices": [_device(device) for device in snapshot.devices],
        "sources": [source(report) for report in snapshot.sources],
        "collectors": {name: asdict(health) for name, health in snapshot.collectors.items()},
    }
    return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"
