"""Fan speed, for the cards that have a fan.

    amdgpu_fan_speed_ratio 0.31

hwmon pwm1 over its range of 255; AMD SMI's fan speed over its own maximum. Instinct accelerators
are cooled by the chassis and have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import number
from exporter.sources.session import SLOW
from exporter.values import IMPLAUSIBLE, NOT_SUPPORTED, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Fan:
    """The fan's speed as a ratio of its highest, from 0 to 1."""

    speed: float | None = None


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From hwmon."""
    channel = next(iter(gpu.hwmon("pwm").values()), None)
    if channel is None:
        return {"speed": Absent(NOT_SUPPORTED, "hwmon has no pwm: the card has no fan")}
    return {"speed": number(gpu.text(channel, SLOW), scale=1 / 255, high=1)}


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """Speed over maximum, both of fan 0."""
    speed = gpu.call("amdsmi_get_gpu_fan_speed", 0, every=SLOW)
    return _ratio(speed, gpu.call("amdsmi_get_gpu_fan_speed_max", 0, every=SLOW))


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """Speed over maximum, both of fan 0."""
    speed = gpu.get("rsmi_dev_fan_speed_get", "int64", 0, every=SLOW)
    return _ratio(speed, gpu.get("rsmi_dev_fan_speed_max_get", "uint64", 0, every=SLOW))


def _ratio(raw_speed: object, raw_highest: object) -> Fields:
    speed, highest = number(raw_speed), number(raw_highest)
    ratio: Value
    if isinstance(speed, Absent):
        ratio = speed
    elif isinstance(highest, Absent):
        ratio = highest
    elif not highest:
        ratio = Absent(IMPLAUSIBLE, "the highest fan speed is 0")
    else:
        ratio = number(speed / highest, high=1)
    return {"speed": ratio}


COLLECTOR = Collector(
    name="fan",
    summary="fan speed",
    reading=Fan,
    readers=(
        Reader("sysfs", read_sysfs, every=SLOW),
        Reader("amdsmi", read_amdsmi, every=SLOW),
        Reader("rocm_smi", read_rocm_smi, every=SLOW),
    ),
    metrics=(
        Metric(
            "amdgpu_fan_speed_ratio",
            "gauge",
            "Fan speed over its highest (hwmon pwm1; amdsmi_get_gpu_fan_speed), every 30 s.",
            lambda f: f.speed,
        ),
    ),
)
