"""The support report: per GPU and field which source gives it, or why it is absent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from exporter import __version__
from exporter.collectors.base import Collector
from exporter.exposition.document import source
from exporter.snapshot import Device, FieldKey, Snapshot
from exporter.sources.session import POD_RESOURCES
from exporter.values import Absent


@dataclass(frozen=True, slots=True)
class Row:
    """One field of one device.

    Attributes:
        field: its name, with the key in brackets where it has several values.
        source: which gives it; None where none does.
        absences: why not, by source, where none does.
        known: why not, where no source says it: what this generation of hardware lacks, or that
            the device is down; empty where it is given, or the sources tell all.
    """

    gpu: int
    pci_address: str
    partition: str | None
    collector: str
    field: str
    source: str | None
    absences: dict[str, Absent]
    known: str


def rows(snapshot: Snapshot, collectors: Sequence[Collector[Any]]) -> Iterator[Row]:
    """Every field that a source names or the collector declares, derived ones left out."""
    order = {collector.name: number for number, collector in enumerate(collectors)}
    for device in snapshot.devices:
        places: set[FieldKey] = {*device.origins, *device.absences}
        for collector in collectors:
            if not collector.readers:
                continue  # judged from other collectors' readings
            derived = {rule.into for rule in collector.derived}
            named = {place[1] for place in places if place[0] == collector.name}
            for declared in fields(collector.reading):
                if declared.name not in named | derived and device.key.partition is None:
                    places.add((collector.name, declared.name, ""))
        for place in sorted(places, key=lambda p: (order[p[0]], p[1], _natural(p[2]))):
            yield _row(device, place, collectors[order[place[0]]].why_absent.get(place[1], ""))


def _natural(key: str) -> tuple[int, str]:
    """Links and stacks by number, sensors and blocks by name."""
    return (int(key), "") if key.isdigit() else (-1, key)


def _row(device: Device, place: FieldKey, known: str) -> Row:
    collector, name, inner = place
    return Row(
        gpu=device.gpu,
        pci_address=device.key.address,
        partition=device.key.partition,
        collector=collector,
        field=f"{name}[{inner}]" if inner else name,
        source=device.origins.get(place),
        absences=dict(device.absences.get(place, {})),
        known=_known(device, place, known),
    )


def _known(device: Device, place: FieldKey, of_hardware: str) -> str:
    if place in device.origins:
        return ""
    if not device.up:
        return f"the device is down: {device.why_down}"
    if device.suspended:
        return "the device sleeps"
    return of_hardware or ("" if place in device.absences else "no source reports it")


def support_json(snapshot: Snapshot, collectors: Sequence[Collector[Any]]) -> str:
    """The report for programs."""
    document = {
        "version": __version__,
        "simulated": snapshot.simulated,
        "node": dict(snapshot.node),
        "devices_by_view": dict(snapshot.views),
        "sources": [source(report) for report in snapshot.sources],
        "fields": [
            {
                "gpu": row.gpu,
                "pci_address": row.pci_address,
                "partition": row.partition,
                "collector": row.collector,
                "field": row.field,
                "source": row.source,
                "absent": {
                    name: {"reason": absent.reason, "detail": absent.detail}
                    for name, absent in row.absences.items()
                },
                "known": row.known or None,
            }
            for row in rows(snapshot, collectors)
        ],
    }
    return json.dumps(document, indent=1)


def support_table(snapshot: Snapshot, collectors: Sequence[Collector[Any]]) -> str:
    """The report for people; devices for which the same holds share a line."""
    lines = [f"amdgpu-exporter {__version__}"]
    if snapshot.simulated:
        lines.append("SIMULATED: no value here comes from hardware")
    lines += ["", "SOURCES"]
    for report in snapshot.sources:
        state = "up" if report.up else "resting" if report.paused else "DOWN"
        lines.append(f"  {report.name:10} {state:8} {len(report.devices)} GPUs")
        if report.reason:
            lines.append(f"             {report.reason}")
            lines.append(f"             what to do: {report.remedy}")
        lines += [f"             {absent.detail}" for absent in report.unanswered.values()]
        lines += [
            f"             {name}: {value}"
            for name, value in report.node.items()
            if isinstance(value, str) and name != "boot_id"
        ]
    asked = {report.name for report in snapshot.sources}
    if not snapshot.simulated and POD_RESOURCES not in asked:
        lines += [f"  {POD_RESOURCES:10} off", "             asked with --collector.allocations"]
    lines += ["", "GPUS"]
    if not snapshot.devices:
        lines.append("  none was found")
    for device in {d.key.address: d for d in snapshot.devices}.values():
        state = "suspended" if device.suspended else "up"
        if not device.up:
            state = f"DOWN: {device.why_down}"
        lines.append(f"  {device.gpu:<3} {device.key.address}  {state}")
    lines += ["", "FIELDS"]
    table = [("GPU", "FIELD", "SOURCE", "WHY ABSENT"), *_grouped(snapshot, collectors)]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    lines += [
        "  " + "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]])
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)


def _grouped(
    snapshot: Snapshot, collectors: Sequence[Collector[Any]]
) -> list[tuple[str, str, str, str]]:
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    passing = {collector.name: collector.keys for collector in collectors if collector.keys}
    for row in rows(snapshot, collectors):
        why = "; ".join(
            f"{name}: {absent.reason}" + (f" ({absent.detail})" if absent.detail else "")
            for name, absent in row.absences.items()
        )
        if row.known:
            why = f"{row.known} [{why}]" if why else row.known
        if row.pci_address in why:
            why = why.replace(row.pci_address, "DEVICE")
        name = f"{row.collector}.{row.field}"
        if row.collector in passing and "[" in name:
            name = f"{name.partition('[')[0]}[{passing[row.collector]}]"
        partition = f"/{row.partition}" if row.partition is not None else ""
        groups.setdefault((name, row.source or "-", why, partition), []).append(row.gpu)
    return [
        (_ranges(gpus) + partition, name, source_name, why)
        for (name, source_name, why, partition), gpus in groups.items()
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as a person writes them: 0-3,5."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][-1:] = [parts[-1][-1], number] if len(parts[-1]) == 1 else [number]
        else:
            parts.append([number])
    return ",".join("-".join(str(n) for n in part) for part in parts)
