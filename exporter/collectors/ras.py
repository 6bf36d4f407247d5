"""RAS: memory and block errors, and retired pages.

    amdgpu_ecc_errors_total{block="umc",severity="correctable"} 3
    amdgpu_bad_pages{state="retired"} 2

The files ras/*_err_count of the enabled blocks (the bits of ras/features, in the order of enum
amdgpu_ras_block) and ras/gpu_vram_bad_pages. The libraries read the same files, but AMD SMI
swallows a failed block and answers zero, so it is not asked; ROCm SMI tells. They are read on the
slow clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import counter, item, number
from exporter.sources.ras import error_counts
from exporter.sources.session import SLOW, STATIC
from exporter.values import Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Ras:
    """Errors since the driver was loaded, by RAS block, and bad pages.

    Attributes:
        correctable, uncorrectable, deferred: error counts by block.
        bad_pages: by state: retired, pending, unreservable.
        bad_page_threshold: how many the device tolerates.
    """

    correctable: Mapping[str, int] = field(default_factory=dict)
    uncorrectable: Mapping[str, int] = field(default_factory=dict)
    deferred: Mapping[str, int] = field(default_factory=dict)
    bad_pages: Mapping[str, int] = field(default_factory=dict)
    bad_page_threshold: int | None = None


# enum amdgpu_ras_block in drivers/gpu/drm/amd/amdgpu/amdgpu_ras.h
_BLOCKS = (
    "umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl", "df", "smn", "sem",
    "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
)  # fmt: skip
_PAGE_STATES = {"R": "retired", "P": "pending", "F": "unreservable"}
_FEATURES = re.compile(r"0x([0-9a-fA-F]+)")
_PAGE = re.compile(r"^0x[0-9a-f]+ : 0x[0-9a-f]+ : ([RPF])\s*$", re.MULTILINE | re.IGNORECASE)
_SUFFIX = "_err_count"


def _enabled_blocks(gpu: SysfsGpu) -> tuple[str, ...]:
    """The blocks whose RAS is on; all that have a file where the mask can't be read."""
    present = {name[: -len(_SUFFIX)] for name in gpu.names("ras", STATIC) if name.endswith(_SUFFIX)}
    mask = _FEATURES.search(str(gpu.text("ras/features", STATIC)))
    bits = int(mask.group(1), 16) if mask else -1
    return tuple(b for bit, b in enumerate(_BLOCKS) if b in present and bits >> bit & 1)


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """The counts of every enabled block, and the bad pages."""
    fields: dict[str, dict[str, Value]] = {"correctable": {}, "uncorrectable": {}, "deferred": {}}
    for block in _enabled_blocks(gpu):
        for severity, count in error_counts(gpu.text(f"ras/{block}{_SUFFIX}", SLOW)).items():
            fields[severity][block] = count
    pages = gpu.text("ras/gpu_vram_bad_pages", SLOW)
    states = [] if isinstance(pages, Absent) else _PAGE.findall(pages.upper().replace("0X", "0x"))
    fields["bad_pages"] = {
        name: pages if isinstance(pages, Absent) else states.count(letter)
        for letter, name in _PAGE_STATES.items()
    }
    return fields


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """The threshold, which only AMD SMI 7.0 and newer tell."""
    return {
        "bad_page_threshold": number(gpu.call("amdsmi_get_gpu_bad_page_threshold", every=STATIC))
    }


_ROCM_SMI_STATES = {"reserved": "retired", "pending": "pending", "unreservable": "unreservable"}


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """The counts of every enabled block, and the bad pages; this library hides no failure."""
    fields: dict[str, dict[str, Value]] = {"correctable": {}, "uncorrectable": {}}
    blocks = gpu.ras_blocks()
    for block, mask in {} if isinstance(blocks, Absent) else blocks.items():
        counted = gpu.error_count(block, mask)
        for severity, counts in fields.items():
            counts[block] = counter(item(counted, f"{severity}_err"), bits=64)
    pages = gpu.page_counts()
    fields["bad_pages"] = {
        name: number(item(pages, state)) for state, name in _ROCM_SMI_STATES.items()
    }
    return fields


COLLECTOR = Collector(
    name="ras",
    summary="ECC and other RAS errors per block, bad pages",
    reading=Ras,
    readers=(
        Reader("sysfs", read_sysfs, every=SLOW),
        Reader("rocm_smi", read_rocm_smi),
        Reader("amdsmi", read_amdsmi, every=SLOW),
    ),
    counters=(
        "correctable",
        "uncorrectable",
        "deferred",
    ),
    metrics=(
        Metric(
            "amdgpu_ecc_errors_total",
            "counter",
            "Errors of a RAS block since the driver was loaded, enabled blocks only "
            "(ras/*_err_count, read every 30 s).",
            lambda r: {
                (block, severity): count
                for severity, counts in (
                    ("correctable", r.correctable),
                    ("uncorrectable", r.uncorrectable),
                    ("deferred", r.deferred),
                )
                for block, count in counts.items()
            },
            ("block", "severity"),
        ),
        Metric(
            "amdgpu_bad_pages",
            "gauge",
            "VRAM pages taken out of use, or about to be (ras/gpu_vram_bad_pages, every 30 s).",
            lambda r: r.bad_pages,
            ("state",),
        ),
        Metric(
            "amdgpu_bad_page_threshold",
            "gauge",
            "Bad pages that the device tolerates (amdsmi_get_gpu_bad_page_threshold).",
            lambda r: r.bad_page_threshold,
        ),
    ),
    why_absent={
        "deferred": "counted by newer kernels, on MI300 and newer",
        "bad_page_threshold": "AMD SMI 7.0 and newer tell it, where the driver does",
    },
)
