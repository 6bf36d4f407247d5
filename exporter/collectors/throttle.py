"""Throttling, as a share of time.

    amdgpu_throttle_ratio{reason="power"} 0.12
    amdgpu_throttle_seconds_total{reason="power"} 310.4

gpu_metrics 1.6 and newer (MI300 on) counts for each reason how long it was in force:
*_residency_acc against accumulation_counter, both in the firmware's ticks and 32 bits wide. The
share of a poll interval is the quotient of their changes. Older devices give a bit mask of the
moment instead (throttle_status), which says nothing about a share of time and is false on some
(rocm-systems#11781), so they have no series here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Integral, Metric, Reader, Share
from exporter.sources.guard import counter
from exporter.values import Fields

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu


@dataclass(frozen=True, slots=True)
class Throttle:
    """Throttling of a device, by reason.

    Attributes:
        residency: ticks for which the reason was in force, since the driver was loaded.
        ticks: all ticks since then.
        ratio: the share of the last poll interval.
        seconds: that share over time, since the exporter started.
    """

    residency: Mapping[str, int] = field(default_factory=dict)
    ticks: int | None = None
    ratio: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


RESIDENCIES = {
    "power": "ppt_residency_acc",
    "junction_thermal": "socket_thm_residency_acc",
    "hbm_thermal": "hbm_thm_residency_acc",
    "vr_thermal": "vr_thm_residency_acc",
    "prochot": "prochot_residency_acc",
}


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From gpu_metrics; amdsmi_get_violation_status would sleep 100 ms for the same numbers."""
    return {
        "residency": {
            reason: counter(gpu.metric(key), bits=32) for reason, key in RESIDENCIES.items()
        },
        "ticks": counter(gpu.metric("accumulation_counter"), bits=32),
    }


COLLECTOR = Collector(
    name="throttle",
    summary="throttling by reason, as a share of time",
    reading=Throttle,
    readers=(Reader("amdsmi", read_amdsmi), Reader("rocm_smi", read_amdsmi)),
    counters=(
        "residency",
        "ticks",
    ),
    metrics=(
        Metric(
            "amdgpu_throttle_ratio",
            "gauge",
            "Share of the last poll interval for which the reason throttled (gpu_metrics "
            "*_residency_acc over accumulation_counter).",
            lambda t: t.ratio,
            ("reason",),
        ),
        Metric(
            "amdgpu_throttle_seconds_total",
            "counter",
            "amdgpu_throttle_ratio added up over time since the exporter started.",
            lambda t: t.seconds,
            ("reason",),
        ),
    ),
    derived=(
        Share("ratio", of="residency", over="ticks"),
        Integral("seconds", of="ratio"),
    ),
    why_absent={
        "residency": "the firmware counts it from MI300 on (gpu_metrics 1.6)",
        "ticks": "the firmware counts it from MI300 on (gpu_metrics 1.6)",
    },
)
