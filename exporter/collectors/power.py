"""Power and energy.

    amdgpu_power_watts 140
    amdgpu_power_limit_watts 750
    amdgpu_energy_joules_total 228881.8

Power: gpu_metrics current_socket_power (MI300 and newer) or average_socket_power (before), else
hwmon power1_input or power1_average in microwatts. On MI250 and MI250X the sensor belongs to the
package: the secondary die answers 0 with a limit of 0, which here is no power at all.
Energy: gpu_metrics energy_accumulator, in units of 2^-16 J (15.259 µJ; the driver's header).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.sources.guard import counter, first, item, watts
from exporter.sources.session import SLOW
from exporter.values import IMPLAUSIBLE, NOT_SUPPORTED, SENTINEL, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu

ENERGY_UNIT = 2.0**-16
MICROWATT = 1e-6
_SECONDARY = Absent(NOT_SUPPORTED, "secondary die: the package's sensor belongs to the primary")


@dataclass(frozen=True, slots=True)
class Power:
    """Power and energy of a device.

    Attributes:
        watts: drawn by the socket.
        limit_watts: the cap in force.
        joules: used since the driver was loaded.
    """

    watts: float | None = None
    limit_watts: float | None = None
    joules: float | None = None


def _of_socket(power: Value, limit: Value) -> tuple[Value, Value]:
    """Power and limit, both absent where they are those of a secondary die."""
    if limit == 0:
        return (_SECONDARY if power == 0 or isinstance(power, Absent) else power), _SECONDARY
    return power, limit


def _joules(metric: Callable[[str], object]) -> Value:
    """From a gpu_metrics table, read by `metric(name)`; both libraries have it."""
    joules = counter(metric("energy_accumulator"), bits=64, scale=ENERGY_UNIT)
    if joules == 0:
        return Absent(SENTINEL, "0: no energy counter, as on a secondary die")
    return joules


def _cap(info: object) -> Value:
    """The cap from AMD SMI; version 6.1 keeps nine digits, so a tenth of 1000 W and more.

    What may have been cut so is left to the file.
    """
    cap, highest = (
        watts(item(info, key), scale=MICROWATT) for key in ("power_cap", "max_power_cap")
    )
    if isinstance(cap, (Absent, str)) or isinstance(highest, (Absent, str)):
        return cap
    if 100 <= cap < 500 and highest >= 1000:
        return Absent(IMPLAUSIBLE, f"power_cap: {cap} W, perhaps cut to nine digits")
    return cap


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From gpu_metrics, and the cap from its own call (microwatts)."""
    power, limit = _of_socket(
        first(
            watts(gpu.metric("current_socket_power")),
            watts(gpu.metric("average_socket_power")),
        ),
        _cap(gpu.call("amdsmi_get_power_cap_info", every=SLOW)),
    )
    return {"watts": power, "limit_watts": limit, "joules": _joules(gpu.metric)}


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """From gpu_metrics, else from hwmon through calls (microwatts)."""
    power = first(
        watts(gpu.metric("current_socket_power")), watts(gpu.metric("average_socket_power"))
    )
    if isinstance(power, Absent):
        power = first(
            watts(gpu.get("rsmi_dev_current_socket_power_get", "uint64"), scale=MICROWATT),
            watts(gpu.get("rsmi_dev_power_ave_get", "uint64", 0), scale=MICROWATT),
        )
    limit = gpu.get("rsmi_dev_power_cap_get", "uint64", 0, every=SLOW)
    power, limit = _of_socket(power, watts(limit, scale=MICROWATT))
    return {"watts": power, "limit_watts": limit, "joules": _joules(gpu.metric)}


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From hwmon."""
    channel = next(iter(gpu.hwmon("power").values()), "hwmon/power1")
    power, limit = _of_socket(
        first(
            watts(gpu.text(f"{channel}_input"), scale=MICROWATT),
            watts(gpu.text(f"{channel}_average"), scale=MICROWATT),
        ),
        watts(gpu.text(f"{channel}_cap", SLOW), scale=MICROWATT),
    )
    return {"watts": power, "limit_watts": limit}


COLLECTOR = Collector(
    name="power",
    summary="power, power limit and energy",
    reading=Power,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("rocm_smi", read_rocm_smi),
        Reader("sysfs", read_sysfs),
    ),
    counters=("joules",),
    vital=("watts",),
    metrics=(
        Metric(
            "amdgpu_power_watts",
            "gauge",
            "Power of the socket (gpu_metrics current_socket_power, average_socket_power; hwmon).",
            lambda p: p.watts,
        ),
        Metric(
            "amdgpu_power_limit_watts",
            "gauge",
            "Power limit in force (amdsmi_get_power_cap_info power_cap; hwmon power1_cap).",
            lambda p: p.limit_watts,
        ),
        Metric(
            "amdgpu_energy_joules_total",
            "counter",
            "Energy used since the driver was loaded (gpu_metrics energy_accumulator, 2^-16 J).",
            lambda p: p.joules,
        ),
    ),
)
