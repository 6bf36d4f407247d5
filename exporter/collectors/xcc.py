"""Activity of each compute die (XCC); off by default, since it is eight series per device.

    amdgpu_xcc_activity_ratio{xcc="0"} 0.93

gpu_metrics xcp_stats.gfx_busy_inst (1.6 and newer): one list per partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import percent
from exporter.values import Absent, Fields

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu


@dataclass(frozen=True, slots=True)
class Xcc:
    """Activity from 0 to 1, by number of the die within its partition."""

    activity: Mapping[str, float] = field(default_factory=dict)


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """The dies that the partition has; the table's other entries are marked empty."""
    busy = gpu.metric("xcp_stats.gfx_busy_inst", int(gpu.partition or 0))
    if not isinstance(busy, list):
        return {"activity": {"0": busy}} if isinstance(busy, Absent) else {}
    checked = {str(number): percent(raw) for number, raw in enumerate(busy)}
    return {"activity": {die: v for die, v in checked.items() if not isinstance(v, Absent)}}


COLLECTOR = Collector(
    name="xcc",
    summary="activity of each compute die",
    reading=Xcc,
    readers=(
        Reader("amdsmi", read_amdsmi, per_partition=True),
        Reader("rocm_smi", read_amdsmi, per_partition=True),
    ),
    metrics=(
        Metric(
            "amdgpu_xcc_activity_ratio",
            "gauge",
            "Activity of one compute die (gpu_metrics xcp_stats.gfx_busy_inst).",
            lambda x: x.activity,
            ("xcc",),
        ),
    ),
    default=False,
    why_absent={
        "activity": "in gpu_metrics from 1.6 on (MI300 and newer)",
    },
)
