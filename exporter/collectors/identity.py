"""Who a device is, for joins: `* on(instance, gpu) group_left(name) amdgpu_info`.

    amdgpu_info{uuid="…",name="AMD Instinct MI300X",gfx_target="gfx942",…} 1

Read once per device generation. The gfx target is KFD's: AMD SMI tells it from 6.3 on, at first in
decimal. The UUID is AMD SMI's, which differs from version to version of the
library; a device's name in the series is its PCI address.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import counter, item, number, text
from exporter.sources.session import SLOW, STATIC
from exporter.values import NOT_SUPPORTED, SENTINEL, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Identity:
    """Names and numbers of a device, as text; each is a label of amdgpu_info.

    Attributes:
        vendor_index: the place in the vendor library's list, which changes with the hardware.
        partition_mode, memory_partition: such as CPX and NPS4.
        the others: as their names say.
    """

    uuid: str | None = None
    name: str | None = None
    gfx_target: str | None = None
    serial: str | None = None
    vbios_version: str | None = None
    partition_mode: str | None = None
    memory_partition: str | None = None
    vendor_index: str | None = None
    hip_index: str | None = None
    oam_id: str | None = None
    render_node: str | None = None
    numa_node: str | None = None


_UNNAMED = "AMD Radeon Graphics"


def _market_name(name: str | Absent) -> str | Absent:
    """The name, unless it is libdrm's for a device that its table lacks (amdgpu_asic_id.c)."""
    return Absent(SENTINEL, f"{_UNNAMED}: libdrm does not know it") if name == _UNNAMED else name


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From the calls that describe a device."""
    asic = gpu.call("amdsmi_get_gpu_asic_info", every=STATIC)
    board = gpu.call("amdsmi_get_gpu_board_info", every=STATIC)
    numbering = gpu.call("amdsmi_get_gpu_enumeration_info", every=STATIC)
    render = number(item(numbering, "drm_render"))
    return {
        "uuid": text(gpu.call("amdsmi_get_gpu_device_uuid", every=STATIC)),
        "name": _market_name(text(item(asic, "market_name"))),
        "serial": text(item(board, "product_serial")),
        "vbios_version": text(
            item(gpu.call("amdsmi_get_gpu_vbios_info", every=STATIC), "part_number")
        ),
        "partition_mode": text(gpu.call("amdsmi_get_gpu_compute_partition", every=SLOW)),
        "memory_partition": text(gpu.call("amdsmi_get_gpu_memory_partition", every=SLOW)),
        "vendor_index": str(gpu.index),
        "hip_index": text(item(numbering, "hip_id")),
        "oam_id": text(item(asic, "oam_id")),
        "render_node": render if isinstance(render, Absent) else f"renderD{render}",
    }


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """From the calls that describe a device; the UUID in HIP's form, from the unique id."""
    unique = counter(gpu.get("rsmi_dev_unique_id_get", "uint64", every=STATIC), bits=64)
    render = number(gpu.get("rsmi_dev_drm_render_minor_get", "uint32", every=STATIC))
    return {
        "uuid": unique if isinstance(unique, Absent) else f"GPU-{unique:016x}",
        "name": gpu.text("rsmi_dev_name_get"),
        "serial": gpu.text("rsmi_dev_serial_number_get"),
        "vbios_version": gpu.text("rsmi_dev_vbios_version_get"),
        "partition_mode": gpu.text("rsmi_dev_compute_partition_get", SLOW),
        "memory_partition": gpu.text("rsmi_dev_memory_partition_get", SLOW),
        "vendor_index": str(gpu.index),
        "oam_id": text(gpu.get("rsmi_dev_xgmi_physical_id_get", "uint16", every=STATIC)),
        "render_node": render if isinstance(render, Absent) else f"renderD{render}",
        "numa_node": text(gpu.get("rsmi_topo_numa_affinity_get", "int32", every=STATIC)),
    }


def gfx_target(version: int) -> str:
    """A name such as gfx942 from KFD's decimal gfx_target_version, here 90402."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From the files of the PCI device and KFD."""
    target: Value = Absent(NOT_SUPPORTED, "no KFD node")
    if gpu.nodes and gpu.nodes[0].properties.get("gfx_target_version"):
        target = gfx_target(gpu.nodes[0].properties["gfx_target_version"])
    render = next((name for name in gpu.names("drm", STATIC) if name.startswith("renderD")), None)
    return {
        "name": text(gpu.text("product_name", STATIC)),
        "gfx_target": target,
        "serial": text(gpu.text("serial_number", STATIC)),
        "vbios_version": text(gpu.text("vbios_version", STATIC)),
        "partition_mode": text(gpu.text("current_compute_partition", SLOW)),
        "memory_partition": text(gpu.text("current_memory_partition", SLOW)),
        "oam_id": text(gpu.text("xgmi_physical_id", STATIC)),
        "render_node": render or Absent(NOT_SUPPORTED, "no render node"),
        "numa_node": text(number(gpu.text("numa_node", STATIC))),  # -1: none
    }


COLLECTOR = Collector(
    name="identity",
    summary="names, serial numbers and indexes of the devices",
    reading=Identity,
    readers=(
        Reader("amdsmi", read_amdsmi, every=SLOW),
        Reader("sysfs", read_sysfs, every=SLOW),  # before ROCm SMI, which can rest then
        Reader("rocm_smi", read_rocm_smi, every=SLOW),
    ),
    metrics=(
        Metric(
            "amdgpu_info",
            "gauge",
            "Who the device is; a label that no source reports is empty.",
            lambda i: {f.name: getattr(i, f.name) or "" for f in fields(i)},
            info=True,
        ),
    ),
)
