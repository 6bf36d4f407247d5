"""The picture of the node after one poll: frozen, complete, and all that exposition reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import SourceReport
from exporter.values import Absent

FieldKey = tuple[str, str, str]
"""Collector, field, and key inside the field ("" where the field is one value)."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device, or one partition of it, after a poll.

    Attributes:
        key: PCI address and partition.
        gpu: its number, the same for all partitions of a device.
        up: it answered; the same for all partitions.
        suspended: it sleeps and was not touched.
        why_down: what kept it from answering; empty when up.
        readings: collector name to its reading, with derived fields.
        origins: which source gave a field.
        absences: why a field is missing, by source.
    """

    key: DeviceKey
    gpu: int
    up: bool
    suspended: bool
    why_down: str
    readings: Mapping[str, Any]
    origins: Mapping[FieldKey, str]
    absences: Mapping[FieldKey, Mapping[str, Absent]]


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """A collector after a poll.

    Attributes:
        success: all its readers ran, and its values are not missing because a source is down.
        seconds: how long its readers took together; None where none ran.
    """

    success: bool
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The node after one poll.

    Attributes:
        sequence: the number of the poll, from 1.
        timestamp: Unix time at its end, in seconds.
        interval: seconds between two polls.
        simulated: nothing here comes from hardware.
        devices: every device seen in this boot, and their partitions, by number.
        sources: after this poll.
        node: versions, as text; what is not known is missing.
        views: how many GPUs each view counts.
        collectors: by name, the enabled ones.
        rejected: values turned down since the start, by collector and reason.
        resets: counters that went backwards since the start, by collector.
    """

    sequence: int
    timestamp: float
    interval: float
    simulated: bool
    devices: tuple[Device, ...]
    sources: tuple[SourceReport, ...]
    node: Mapping[str, str]
    views: Mapping[str, int]
    collectors: Mapping[str, CollectorHealth]
    rejected: Mapping[tuple[str, str], int]
    resets: Mapping[str, int]
