"""Time that the compute dies spent below the clock limit that the host set; off by default.

    amdgpu_below_host_limit_ratio{xcc="0"} 0.4

gpu_metrics xcp_stats.gfx_below_host_limit_acc (1.7) or gfx_below_host_limit_total_acc (1.8) against
accumulation_counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader, Share
from exporter.sources.guard import counter
from exporter.values import Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu


@dataclass(frozen=True, slots=True)
class HostLimit:
    """By number of the die within its partition.

    Attributes:
        residency: ticks below the limit since the driver was loaded.
        ticks: all ticks since then.
        ratio: the share of the last poll interval.
    """

    residency: Mapping[str, int] = field(default_factory=dict)
    ticks: int | None = None
    ratio: Mapping[str, float] = field(default_factory=dict)


_TABLES = ("xcp_stats.gfx_below_host_limit_acc", "xcp_stats.gfx_below_host_limit_total_acc")


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From whichever of the two tables the driver fills."""
    residency: dict[str, Value] = {}
    for table in _TABLES:
        raws = gpu.metric(table, int(gpu.partition or 0))
        for die, raw in enumerate(raws if isinstance(raws, list) else ()):
            ticks = counter(raw, bits=64)
            if not isinstance(ticks, Absent):
                residency[str(die)] = ticks
    return {
        "residency": residency,
        "ticks": counter(gpu.metric("accumulation_counter"), bits=32),
    }


COLLECTOR = Collector(
    name="host_limit",
    summary="time below the clock limit that the host set",
    reading=HostLimit,
    readers=(
        Reader("amdsmi", read_amdsmi, per_partition=True),
        Reader("rocm_smi", read_amdsmi, per_partition=True),
    ),
    counters=(
        "residency",
        "ticks",
    ),
    metrics=(
        Metric(
            "amdgpu_below_host_limit_ratio",
            "gauge",
            "Share of the last poll interval below the host's clock limit (gpu_metrics "
            "xcp_stats.gfx_below_host_limit_acc, gfx_below_host_limit_total_acc).",
            lambda h: h.ratio,
            ("xcc",),
        ),
    ),
    derived=(Share("ratio", of="residency", over="ticks"),),
    default=False,
    why_absent={
        "residency": "in gpu_metrics from 1.7 on (MI300 and newer)",
        "ticks": "in gpu_metrics from 1.6 on (MI300 and newer)",
    },
)
