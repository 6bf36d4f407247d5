"""How busy a device is, as its firmware averages it.

    amdgpu_gfx_activity_ratio 0.93
    amdgpu_memory_activity_ratio 0.41
    amdgpu_media_activity_ratio 0
    amdgpu_gfx_active_seconds_total 51840.2

gpu_metrics average_gfx_activity, average_umc_activity, average_mm_activity or vcn_activity. A
partition's activity is the mean over its own compute dies (xcp_stats.gfx_busy_inst), since the
socket's average says nothing about one of its partitions. Files: gpu_busy_percent and the like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Integral, Metric, Reader
from exporter.sources.guard import first, mean, percent
from exporter.values import Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Activity:
    """Shares of time from 0 to 1, and their sum over time in seconds.

    Attributes:
        gfx: of the compute and graphics engines.
        memory: of the memory controllers.
        media: of the video engines, the mean over them.
        gfx_seconds, memory_seconds: the shares added up over time since the daemon started.
    """

    gfx: float | None = None
    memory: float | None = None
    media: float | None = None
    gfx_seconds: float | None = None
    memory_seconds: float | None = None


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """Memory and media activity of the socket."""
    return {
        "memory": percent(gpu.metric("average_umc_activity")),
        "media": first(
            percent(gpu.metric("average_mm_activity")),
            # before vcn_activity, which ROCm SMI 6.4 fills from the first partition alone
            mean(_engines(gpu.metric("xcp_stats.vcn_busy")), convert=percent),
            mean(gpu.metric("vcn_activity"), convert=percent),
        ),
    }


def _engines(by_partition: object) -> object:
    """The video engines of all partitions in one list."""
    if not isinstance(by_partition, list):
        return by_partition
    return [engine for row in by_partition if isinstance(row, list) for engine in row]


def read_amdsmi_gfx(gpu: AmdSmiGpu) -> Fields:
    """Compute activity, of the partition where there is one."""
    if gpu.partition is None:
        return {"gfx": percent(gpu.metric("average_gfx_activity"))}
    busy = gpu.metric("xcp_stats.gfx_busy_inst", int(gpu.partition))
    return {"gfx": mean(busy, convert=percent)}


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """From the busy files of the socket through calls, where gpu_metrics can't be read."""
    fields: dict[str, Value] = {}
    if isinstance(percent(gpu.metric("average_umc_activity")), Absent):
        fields["memory"] = percent(gpu.get("rsmi_dev_memory_busy_percent_get", "uint32"))
    if not gpu.partitioned and isinstance(percent(gpu.metric("average_gfx_activity")), Absent):
        fields["gfx"] = percent(gpu.get("rsmi_dev_busy_percent_get", "uint32"))
    return fields


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From the busy files of the socket; they know no partitions."""
    fields = {
        "memory": percent(gpu.text("mem_busy_percent")),
        "media": percent(gpu.text("vcn_busy_percent")),
    }
    if not gpu.partitioned:
        fields["gfx"] = percent(gpu.text("gpu_busy_percent"))
    return fields


COLLECTOR = Collector(
    name="activity",
    summary="activity of compute, memory and media engines",
    reading=Activity,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("amdsmi", read_amdsmi_gfx, per_partition=True),
        Reader("rocm_smi", read_amdsmi),  # it has the same table
        Reader("rocm_smi", read_amdsmi_gfx, per_partition=True),
        Reader("rocm_smi", read_rocm_smi),
        Reader("sysfs", read_sysfs),
    ),
    vital=("gfx", "memory"),
    metrics=(
        Metric(
            "amdgpu_gfx_activity_ratio",
            "gauge",
            "Activity of the compute engines (gpu_metrics average_gfx_activity; of a partition "
            "xcp_stats.gfx_busy_inst; gpu_busy_percent).",
            lambda a: a.gfx,
        ),
        Metric(
            "amdgpu_memory_activity_ratio",
            "gauge",
            "Activity of the memory controllers (gpu_metrics average_umc_activity; "
            "mem_busy_percent).",
            lambda a: a.memory,
        ),
        Metric(
            "amdgpu_media_activity_ratio",
            "gauge",
            "Activity of the video engines (gpu_metrics average_mm_activity, vcn_activity, "
            "xcp_stats.vcn_busy; vcn_busy_percent).",
            lambda a: a.media,
        ),
        Metric(
            "amdgpu_gfx_active_seconds_total",
            "counter",
            "amdgpu_gfx_activity_ratio added up over time since the exporter started.",
            lambda a: a.gfx_seconds,
        ),
        Metric(
            "amdgpu_memory_active_seconds_total",
            "counter",
            "amdgpu_memory_activity_ratio added up over time since the exporter started.",
            lambda a: a.memory_seconds,
        ),
    ),
    derived=(Integral("gfx_seconds", of="gfx"), Integral("memory_seconds", of="memory")),
)
