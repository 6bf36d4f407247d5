"""PCIe traffic as the firmware reports it; off by default, since its unit is disputed.

    amdgpu_pcie_traffic_raw_total 7.35e+11

gpu_metrics pcie_bandwidth_acc and pcie_bandwidth_inst, both directions together, MI300 and newer.
The kernel's header says GB/s, AMD SMI's documentation Mb/s, the profiler MB: the raw number is
passed on, and no unit is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import counter
from exporter.values import Fields

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu


@dataclass(frozen=True, slots=True)
class PcieTraffic:
    """Raw numbers without a unit: accumulated, and of the moment."""

    accumulated: int | None = None
    instantaneous: int | None = None


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From gpu_metrics."""
    return {
        "accumulated": counter(gpu.metric("pcie_bandwidth_acc"), bits=64),
        "instantaneous": counter(gpu.metric("pcie_bandwidth_inst"), bits=32),
    }


COLLECTOR = Collector(
    name="pcie_traffic",
    summary="PCIe traffic as reported, in a disputed unit",
    reading=PcieTraffic,
    readers=(Reader("amdsmi", read_amdsmi), Reader("rocm_smi", read_amdsmi)),
    counters=("accumulated",),
    metrics=(
        Metric(
            "amdgpu_pcie_traffic_raw_total",
            "counter",
            "PCIe traffic of both directions, as reported (gpu_metrics pcie_bandwidth_acc).",
            lambda p: p.accumulated,
        ),
        Metric(
            "amdgpu_pcie_traffic_instant_raw",
            "gauge",
            "PCIe traffic of the moment, as reported (gpu_metrics pcie_bandwidth_inst).",
            lambda p: p.instantaneous,
        ),
    ),
    default=False,
    why_absent={
        "accumulated": "in gpu_metrics from 1.4 on (MI300 and newer)",
        "instantaneous": "in gpu_metrics from 1.4 on (MI300 and newer)",
    },
)
