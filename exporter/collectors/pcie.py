"""PCIe: replays and other link trouble, the link as it is and as it could be, AER.

    amdgpu_pcie_replays_total 2
    amdgpu_pcie_replays_per_second 0
    amdgpu_pcie_link_transfers_per_second 3.2e+10
    amdgpu_pcie_link_width_lanes 16
    amdgpu_pcie_aer_errors_total{severity="correctable"} 0

Link: the files current_link_speed and the like, else gpu_metrics pcie_link_speed (0.1 GT/s, or a
generation from 0 to 6 on some devices) and pcie_link_width. Counts: gpu_metrics pcie_*_acc (MI300
and newer), else the file pcie_replay_count, which all have. AER: the totals in aer_dev_*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporter.collectors.base import Collector, Metric, Rate, Reader
from exporter.sources.guard import counter, item, number
from exporter.sources.session import STATIC
from exporter.values import NOT_SUPPORTED, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Pcie:
    """The PCIe link of a device. Counts are since the driver was loaded or the device reset.

    Attributes:
        replays, rollovers, recoveries: replays, replay rollovers, recoveries out of L0.
        replay_rate: replays per second over the last poll.
        naks: by direction: sent, received.
        transfers, max_transfers: transfers per second of one lane, now and at most.
        width, max_width: lanes, now and at most.
        aer: errors by severity: correctable, nonfatal, fatal.
    """

    replays: int | None = None
    replay_rate: float | None = None
    rollovers: int | None = None
    recoveries: int | None = None
    naks: Mapping[str, int] = field(default_factory=dict)
    transfers: float | None = None
    max_transfers: float | None = None
    width: int | None = None
    max_width: int | None = None
    aer: Mapping[str, int] = field(default_factory=dict)


_GENERATIONS = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
_SPEED = re.compile(r"([\d.]+) GT/s")
_AER_FILES = {
    "correctable": ("aer_dev_correctable", "TOTAL_ERR_COR"),
    "nonfatal": ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
    "fatal": ("aer_dev_fatal", "TOTAL_ERR_FATAL"),
}


def counts_from_metrics(metric: Any) -> Fields:
    """The counts of a gpu_metrics table, read by `metric(name)`; both libraries have it."""
    return {
        "replays": counter(metric("pcie_replay_count_acc"), bits=64),
        "rollovers": counter(metric("pcie_replay_rover_count_acc"), bits=64),
        "recoveries": counter(metric("pcie_l0_to_recov_count_acc"), bits=64),
        "naks": {
            "sent": counter(metric("pcie_nak_sent_count_acc"), bits=32),
            "received": counter(metric("pcie_nak_rcvd_count_acc"), bits=32),
        },
    }


def link_from_metrics(metric: Any) -> Fields:
    """The link of a gpu_metrics table, which gives the speed in 0.1 GT/s or as a generation."""
    raw = number(metric("pcie_link_speed"), low=1)
    speed: Value = raw
    if isinstance(raw, (int, float)):
        speed = _GENERATIONS.get(int(raw)) or number(raw, scale=1e8, high=1.3e11)
    return {"transfers": speed, "width": number(metric("pcie_link_width"), low=1, high=32)}


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """The counts, from gpu_metrics."""
    return counts_from_metrics(gpu.metric)


def read_amdsmi_link(gpu: AmdSmiGpu) -> Fields:
    """The link as it is, from gpu_metrics."""
    return link_from_metrics(gpu.metric)


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """The replay count through a call, and the link's limits from its table of levels."""
    levels = gpu.pci_bandwidth(STATIC)
    return {
        "replays": counter(gpu.get("rsmi_dev_pci_replay_counter_get", "uint64"), bits=32),
        "max_transfers": number(item(levels, "transfers", "highest"), low=1, high=1.3e11),
        "max_width": number(item(levels, "lanes", "highest"), low=1, high=32),
    }


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """The link, from the PCI files."""

    def transfers(name: str, every: float) -> Value:
        text = gpu.text(name, every)
        if isinstance(text, Absent):
            return text
        speed = _SPEED.match(text)
        if speed is None:
            return Absent(NOT_SUPPORTED, f"{name}: {text[:40]!r}")
        return number(speed.group(1), scale=1e9, low=1, high=1.3e11)

    return {
        "transfers": transfers("current_link_speed", 0),
        "max_transfers": transfers("max_link_speed", STATIC),
        "width": number(gpu.text("current_link_width"), low=1, high=32),
        "max_width": number(gpu.text("max_link_width", STATIC), low=1, high=32),
    }


def read_sysfs_replays(gpu: SysfsGpu) -> Fields:
    """The replay count, which devices without one in gpu_metrics have as a file."""
    return {"replays": counter(gpu.text("pcie_replay_count"), bits=32)}


def read_sysfs_aer(gpu: SysfsGpu) -> Fields:
    """The totals of the AER files; they need neither firmware nor library."""
    aer: dict[str, Value] = {}
    for severity, (name, total) in _AER_FILES.items():
        text = gpu.text(name)
        if isinstance(text, Absent):
            aer[severity] = text
            continue
        found = re.search(rf"^{total} (\d+)$", text, re.MULTILINE)
        aer[severity] = (
            counter(found.group(1), bits=64)
            if found
            else Absent(NOT_SUPPORTED, f"{name}: no {total}")
        )
    return {"aer": aer}


COLLECTOR = Collector(
    name="pcie",
    summary="PCIe replays, NAKs, recoveries, link and AER errors",
    reading=Pcie,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("rocm_smi", read_amdsmi),  # it has the same table
        Reader("sysfs", read_sysfs),
        Reader("sysfs", read_sysfs_replays),
        Reader("sysfs", read_sysfs_aer),
        Reader("amdsmi", read_amdsmi_link),
        Reader("rocm_smi", read_amdsmi_link),
        Reader("rocm_smi", read_rocm_smi),
    ),
    counters=(
        "replays",
        "rollovers",
        "recoveries",
        "naks",
        "aer",
    ),
    metrics=(
        Metric(
            "amdgpu_pcie_replays_total",
            "counter",
            "PCIe replays (gpu_metrics pcie_replay_count_acc; pcie_replay_count).",
            lambda p: p.replays,
        ),
        Metric(
            "amdgpu_pcie_replays_per_second",
            "gauge",
            "PCIe replays per second over the last poll (amdgpu_pcie_replays_total).",
            lambda p: p.replay_rate,
        ),
        Metric(
            "amdgpu_pcie_replay_rollovers_total",
            "counter",
            "Rollovers of the replay counter, each a retrained link (gpu_metrics "
            "pcie_replay_rover_count_acc).",
            lambda p: p.rollovers,
        ),
        Metric(
            "amdgpu_pcie_l0_recoveries_total",
            "counter",
            "Recoveries of the link out of L0 (gpu_metrics pcie_l0_to_recov_count_acc).",
            lambda p: p.recoveries,
        ),
        Metric(
            "amdgpu_pcie_naks_total",
            "counter",
            "NAKs sent and received (gpu_metrics pcie_nak_sent_count_acc, "
            "pcie_nak_rcvd_count_acc).",
            lambda p: p.naks,
            ("direction",),
        ),
        Metric(
            "amdgpu_pcie_link_transfers_per_second",
            "gauge",
            "Transfers per second of one lane now; 32 GT/s is 3.2e10 (current_link_speed).",
            lambda p: p.transfers,
        ),
        Metric(
            "amdgpu_pcie_link_max_transfers_per_second",
            "gauge",
            "Transfers per second of one lane at most (max_link_speed).",
            lambda p: p.max_transfers,
        ),
        Metric(
            "amdgpu_pcie_link_width_lanes",
            "gauge",
            "Lanes in use (current_link_width).",
            lambda p: p.width,
        ),
        Metric(
            "amdgpu_pcie_link_max_width_lanes",
            "gauge",
            "Lanes at most (max_link_width).",
            lambda p: p.max_width,
        ),
        Metric(
            "amdgpu_pcie_aer_errors_total",
            "counter",
            "PCIe errors by Advanced Error Reporting (aer_dev_correctable, aer_dev_nonfatal, "
            "aer_dev_fatal).",
            lambda p: p.aer,
            ("severity",),
        ),
    ),
    derived=(Rate("replay_rate", of="replays"),),
    why_absent={
        "naks": "in gpu_metrics from 1.5 on (MI300 and newer)",
        "recoveries": "in gpu_metrics from 1.4 on (MI300 and newer)",
        "rollovers": "in gpu_metrics from 1.4 on (MI300 and newer)",
    },
)
