"""Firmware versions: how many GPUs of the node run which.

    amdgpu_firmware_devices{block="smc",version="0x00557300"} 8

The files fw_version/*_fw_version, whose names and format stay the same from version to version. AMD
SMI reads the same versions under names that changed in 7.0, so it is not asked: a block would stand
on the page twice. A block at zero is not loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, NodeMetric, Reader
from exporter.sources.guard import text
from exporter.sources.session import SLOW, STATIC
from exporter.values import NOT_SUPPORTED, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Firmware:
    """Version by block, as the source writes it."""

    versions: Mapping[str, str] = field(default_factory=dict)


_SUFFIX = "_fw_version"
_NOT_LOADED = Absent(NOT_SUPPORTED, "version 0: not loaded")


def _loaded(version: Value) -> Value:
    if isinstance(version, str) and not version.lower().removeprefix("0x").strip("0."):
        return _NOT_LOADED
    return version


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """One file per block, read once."""
    return {
        "versions": {
            name[: -len(_SUFFIX)]: _loaded(text(gpu.text(f"fw_version/{name}", STATIC)))
            for name in gpu.names("fw_version", STATIC)
            if name.endswith(_SUFFIX)
        }
    }


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """The numbers of the same files, written as the files have them."""
    return {
        "versions": {
            block: version if isinstance(version, Absent) else _loaded(f"0x{version:08x}")
            for block, version in gpu.firmware().items()
        }
    }


def _devices(readings: Sequence[Firmware]) -> dict[tuple[str, str], int]:
    return dict(Counter(pair for reading in readings for pair in reading.versions.items()))


COLLECTOR = Collector(
    name="firmware",
    summary="firmware versions",
    reading=Firmware,
    readers=(
        Reader("sysfs", read_sysfs, every=SLOW),
        Reader("rocm_smi", read_rocm_smi),
    ),
    metrics=(),
    node_metrics=(
        NodeMetric(
            "amdgpu_firmware_devices",
            "GPUs that run this version of the firmware (fw_version/*).",
            _devices,
            ("block", "version"),
        ),
    ),
)
