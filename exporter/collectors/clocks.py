"""Clocks.

    amdgpu_clock_hertz{clock="gfx"} 1.285e+09
    amdgpu_clock_max_hertz{clock="gfx"} 2.1e+09

Current: gpu_metrics current_*; where there is one per compute die, their mean. Highest:
amdsmi_get_clock_info. From files: the marked line and the last line of pp_dpm_*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import item, mean, megahertz, number
from exporter.sources.session import POLL, SLOW, STATIC
from exporter.values import NOT_SUPPORTED, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of a device in hertz.

    Attributes:
        current: by clock: gfx, memory, soc, video, decode.
        highest: what the device allows at most, by clock.
    """

    current: Mapping[str, float] = field(default_factory=dict)
    highest: Mapping[str, float] = field(default_factory=dict)


_METRICS_FIELDS = {
    "gfx": ("current_gfxclks", "current_gfxclk"),
    "memory": ("current_uclk",),
    "soc": ("current_socclks", "current_socclk"),
    "video": ("current_vclk0s", "current_vclk0"),
    "decode": ("current_dclk0s", "current_dclk0"),
}
_CLOCK_TYPES = {"gfx": "GFX", "memory": "MEM", "soc": "SOC", "video": "VCLK0", "decode": "DCLK0"}
_ROCM_SMI_CLOCKS = {"gfx": "sys", "memory": "mem", "soc": "soc"}
_FILES = {
    "gfx": "pp_dpm_sclk",
    "memory": "pp_dpm_mclk",
    "soc": "pp_dpm_socclk",
    "video": "pp_dpm_vclk",
    "decode": "pp_dpm_dclk",
}
_LEVEL = re.compile(r"^\d+:\s*(\d+)Mhz\s*(\*?)", re.MULTILINE | re.IGNORECASE)


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """Current clocks from gpu_metrics, in MHz."""
    return {
        "current": {
            clock: mean(*(gpu.metric(key) for key in keys), convert=megahertz)
            for clock, keys in _METRICS_FIELDS.items()
        }
    }


def read_amdsmi_highest(gpu: AmdSmiGpu) -> Fields:
    """The highest clocks, each from a call of its own, once."""
    highest: dict[str, Value] = {}
    for clock, kind in _CLOCK_TYPES.items():
        described = gpu.call(
            "amdsmi_get_clock_info", gpu.constant("AmdSmiClkType", kind), every=STATIC
        )
        highest[clock] = megahertz(item(described, "max_clk"))
    return {"highest": highest}


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """Current clocks from gpu_metrics, else from the tables of levels; the highest from these."""
    current: dict[str, Value] = {}
    highest: dict[str, Value] = {}
    for clock, keys in _METRICS_FIELDS.items():
        current[clock] = mean(*(gpu.metric(key) for key in keys), convert=megahertz)
        name = _ROCM_SMI_CLOCKS.get(clock)
        if name is None:
            continue
        if isinstance(current[clock], Absent):
            current[clock] = number(item(gpu.clock(name, POLL), "current"), high=20e9)
        highest[clock] = number(item(gpu.clock(name, STATIC), "highest"), high=20e9)
    return {"current": current, "highest": highest}


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From the tables of levels; a table without a mark tells no current clock."""
    current: dict[str, Value] = {}
    highest: dict[str, Value] = {}
    for clock, path in _FILES.items():
        table = gpu.text(path)
        if isinstance(table, Absent):
            current[clock] = highest[clock] = table
            continue
        levels = _LEVEL.findall(table)
        marked = [megahertz(level) for level, mark in levels if mark]
        current[clock] = marked[0] if marked else Absent(NOT_SUPPORTED, f"{path}: no level marked")
        highest[clock] = (
            megahertz(levels[-1][0]) if levels else Absent(NOT_SUPPORTED, f"{path}: no level")
        )
    return {"current": current, "highest": highest}


COLLECTOR = Collector(
    name="clocks",
    summary="current and highest clocks",
    reading=Clocks,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("amdsmi", read_amdsmi_highest, every=SLOW),
        Reader("rocm_smi", read_rocm_smi),
        Reader("sysfs", read_sysfs),
    ),
    vital=("current",),
    metrics=(
        Metric(
            "amdgpu_clock_hertz",
            "gauge",
            "Current clock, the mean over the dies that have it (gpu_metrics current_*clk*).",
            lambda c: c.current,
            ("clock",),
        ),
        Metric(
            "amdgpu_clock_max_hertz",
            "gauge",
            "Highest clock of the device (amdsmi_get_clock_info max_clk; pp_dpm_*).",
            lambda c: c.highest,
            ("clock",),
        ),
    ),
)
