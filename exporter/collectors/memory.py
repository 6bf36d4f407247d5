"""VRAM, the part of it that the host sees, and GTT.

    amdgpu_vram_total_bytes 206142701568
    amdgpu_vram_used_bytes 314572800

The files mem_info_* give exact bytes; AMD SMI rounds to MiB. The libraries show a partition the
memory of the whole device, so a partition's total is the size of its KFD memory bank, and its use
is the sum over the compute processes (KFD proc/*/vram_*). What the driver and everything else
holds belongs to no partition and stands under partition="shared": the sum over the partitions is
the socket's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import MEBIBYTE, first, item, number
from exporter.sources.session import STATIC
from exporter.values import Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device or partition, in bytes; the bandwidth in bytes per second.

    Attributes:
        total, used: VRAM.
        visible_total, visible_used: the part of VRAM that the host can map.
        gtt_total, gtt_used: host memory that the device can map.
        max_bandwidth: of VRAM, as the firmware reports it.
    """

    total: int | None = None
    used: int | None = None
    visible_total: int | None = None
    visible_used: int | None = None
    gtt_total: int | None = None
    gtt_used: int | None = None
    max_bandwidth: float | None = None


def _at_most(used: Value, total: Value) -> Value:
    """`used` passed through `number` with `total` as its ceiling, where that is known."""
    return used if isinstance(total, (Absent, str)) else number(used, high=total)


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From mem_info_*; on a partitioned device only what the partitions share."""
    fields: dict[str, Value] = {}
    names = [("visible_", "vis_vram"), ("gtt_", "gtt")]
    if not gpu.partitioned:
        names.append(("", "vram"))
    for name, part in names:
        total = number(gpu.text(f"mem_info_{part}_total", STATIC), low=1)
        fields[f"{name}total"] = total
        fields[f"{name}used"] = _at_most(number(gpu.text(f"mem_info_{part}_used")), total)
    return fields


def read_sysfs_partition(gpu: SysfsGpu) -> Fields:
    """A partition's VRAM from KFD; what belongs to none of them for "shared"."""
    if gpu.partition is None:
        return {}
    if gpu.partition != "shared":
        node = gpu.nodes[int(gpu.partition)]
        total = number(node.memory_bytes, low=1)
        return {"total": total, "used": _at_most(gpu.owners.held(node.gpu_id), total)}
    total = number(gpu.text("mem_info_vram_total", STATIC), low=1)
    used = number(gpu.text("mem_info_vram_used"))
    for node in gpu.nodes:
        held = gpu.owners.held(node.gpu_id)
        if isinstance(held, Absent):
            used = held
        if not isinstance(used, Absent) and not isinstance(held, (Absent, str)):
            used -= held
        if not isinstance(total, Absent):
            total -= node.memory_bytes
    # Both files are read one after the other, so a large allocation in between makes this
    # negative; it is then not known.
    shared: dict[str, Value] = {"used": number(used)}
    if total != 0:  # nothing lies outside the partitions' banks: no series, rather than a 0
        shared["total"] = number(total)
    return shared


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """VRAM in MiB as the library rounds it; the bandwidth, in GB/s, from gpu_metrics."""
    fields: dict[str, Value] = {
        "max_bandwidth": first(
            number(gpu.metric("vram_max_bandwidth"), scale=1e9, low=1, high=1e15),
            number(
                item(gpu.call("amdsmi_get_gpu_vram_info", every=STATIC), "vram_max_bandwidth"),
                scale=1e9,
                low=1,
                high=1e15,
            ),
        )
    }
    return fields


def read_amdsmi_vram(gpu: AmdSmiGpu) -> Fields:
    """VRAM in whole MiB, for where the exact bytes can't be read."""
    if gpu.partitioned:
        return {}
    usage = gpu.call("amdsmi_get_gpu_vram_usage")
    total = number(item(usage, "vram_total"), scale=MEBIBYTE, low=1)
    return {
        "total": total,
        "used": _at_most(number(item(usage, "vram_used"), scale=MEBIBYTE), total),
    }


# rsmi_memory_type_t, the same in all versions
_ROCM_SMI_TYPES = {"": 0, "visible_": 1, "gtt_": 2}


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """Exact bytes, from the same files; the bandwidth from gpu_metrics."""
    fields: dict[str, Value] = {
        "max_bandwidth": number(gpu.metric("vram_max_bandwidth"), scale=1e9, low=1, high=1e15)
    }
    for name, kind in _ROCM_SMI_TYPES.items():
        if name or not gpu.partitioned:
            total = gpu.get("rsmi_dev_memory_total_get", "uint64", kind, every=STATIC)
            used = gpu.get("rsmi_dev_memory_usage_get", "uint64", kind)
            fields[f"{name}total"] = size = number(total, low=1)
            fields[f"{name}used"] = _at_most(number(used), size)
    return fields


COLLECTOR = Collector(
    name="memory",
    summary="VRAM, visible VRAM and GTT",
    reading=Memory,
    readers=(
        Reader("sysfs", read_sysfs),
        Reader("sysfs", read_sysfs_partition, per_partition=True),
        Reader("amdsmi", read_amdsmi),
        Reader("rocm_smi", read_rocm_smi),
        Reader("amdsmi", read_amdsmi_vram),
    ),
    metrics=(
        Metric(
            "amdgpu_vram_total_bytes",
            "gauge",
            "VRAM (mem_info_vram_total; of a partition its KFD memory bank).",
            lambda m: m.total,
        ),
        Metric(
            "amdgpu_vram_used_bytes",
            "gauge",
            "VRAM in use (mem_info_vram_used; of a partition KFD proc/*/vram_*, and under "
            'partition="shared" what belongs to none of them).',
            lambda m: m.used,
        ),
        Metric(
            "amdgpu_vram_visible_total_bytes",
            "gauge",
            "VRAM that the host can map (mem_info_vis_vram_total).",
            lambda m: m.visible_total,
        ),
        Metric(
            "amdgpu_vram_visible_used_bytes",
            "gauge",
            "VRAM in use of what the host can map (mem_info_vis_vram_used).",
            lambda m: m.visible_used,
        ),
        Metric(
            "amdgpu_gtt_total_bytes",
            "gauge",
            "Host memory that the device can map (mem_info_gtt_total).",
            lambda m: m.gtt_total,
        ),
        Metric(
            "amdgpu_gtt_used_bytes",
            "gauge",
            "Host memory that the device has mapped (mem_info_gtt_used).",
            lambda m: m.gtt_used,
        ),
        Metric(
            "amdgpu_vram_max_bandwidth_bytes_per_second",
            "gauge",
            "Highest VRAM bandwidth as reported (gpu_metrics vram_max_bandwidth).",
            lambda m: m.max_bandwidth,
        ),
    ),
    why_absent={
        "max_bandwidth": "in gpu_metrics from 1.7 on (MI300 and newer)",
    },
)
