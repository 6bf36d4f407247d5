"""Compute partitions.

    amdgpu_partitions 8

The KFD nodes behind the device; gpu_metrics' num_partition is missing from 1.9 on. The names of the
modes (CPX, NPS4) are labels of amdgpu_info.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.values import NOT_SUPPORTED, Absent, Fields

if TYPE_CHECKING:
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Partition:
    """How many compute partitions a device is split into; 1 is the whole device."""

    count: int | None = None


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From the KFD topology."""
    return {"count": len(gpu.nodes) or Absent(NOT_SUPPORTED, "no KFD node")}


COLLECTOR = Collector(
    name="partition",
    summary="number of compute partitions",
    reading=Partition,
    readers=(Reader("sysfs", read_sysfs),),
    metrics=(
        Metric(
            "amdgpu_partitions",
            "gauge",
            "Compute partitions of the device (KFD topology nodes); 1 is the whole device.",
            lambda p: p.count,
        ),
    ),
)
