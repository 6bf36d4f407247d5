"""Temperatures and the device's own limits.

    amdgpu_temperature_celsius{sensor="junction"} 45
    amdgpu_hbm_temperature_celsius 41
    amdgpu_hbm_stack_temperature_celsius{stack="0"} 40
    amdgpu_temperature_limit_celsius{sensor="hbm",limit="critical"} 94

Sensors: gpu_metrics (temperature_*), else hwmon by label (edge, junction, mem). MI300 and newer
have no edge sensor; a stack's own temperature is told by MI100 and MI200 (temperature_hbm), and by
AMD SMI 10.1 where the driver fills temperature_hbm_stacks. Limits: hwmon temp*_crit (throttling)
and temp*_emergency (shutdown); 0 where the firmware has none, as on virtual functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader, Setting
from exporter.sources.guard import celsius, limit_celsius
from exporter.sources.session import POLL, SLOW
from exporter.values import NOT_SUPPORTED, Absent, Fields, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.rocm_smi import RocmSmiGpu
    from exporter.sources.sysfs import SysfsGpu


@dataclass(frozen=True, slots=True)
class Temperature:
    """All temperatures of a device, in degrees Celsius.

    Attributes:
        sensors: by sensor: edge, junction, hbm, vr_gfx, vr_soc, vr_hbm.
        hbm_stacks: by number of the HBM stack.
        critical: the limit at which the firmware throttles, by sensor.
        emergency: the limit at which the device shuts down, by sensor.
        configured_warning, configured_critical: the fallback from the configuration, for the
            sensors that the device has, but gives no critical limit for.
    """

    sensors: Mapping[str, float] = field(default_factory=dict)
    hbm_stacks: Mapping[str, float] = field(default_factory=dict)
    critical: Mapping[str, float] = field(default_factory=dict)
    emergency: Mapping[str, float] = field(default_factory=dict)
    configured_warning: Mapping[str, float] = field(default_factory=dict)
    configured_critical: Mapping[str, float] = field(default_factory=dict)


METRICS_FIELDS = {
    "edge": "temperature_edge",
    "junction": "temperature_hotspot",
    "hbm": "temperature_mem",
    "vr_gfx": "temperature_vrgfx",
    "vr_soc": "temperature_vrsoc",
    "vr_hbm": "temperature_vrmem",
}
HWMON_LABELS = {"edge": "edge", "junction": "junction", "hbm": "mem"}
# rsmi_temperature_type_t and rsmi_temperature_metric_t, the same in all versions
ROCM_SMI_SENSORS = {"edge": 0, "junction": 1, "hbm": 2}
_CURRENT, _CRITICAL, _EMERGENCY = 0, 5, 7


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From gpu_metrics, one entry per sensor."""
    stacks: dict[str, Value] = {}
    for name in ("temperature_hbm", "temperature_hbm_stacks"):
        raw = gpu.metric(name)
        checked = [celsius(value) for value in raw] if isinstance(raw, list) else []
        # The table has more places than the device has stacks.
        if any(not isinstance(value, Absent) for value in checked):
            stacks = {str(n): v for n, v in enumerate(checked) if not isinstance(v, Absent)}
    return {
        "sensors": {name: celsius(gpu.metric(key)) for name, key in METRICS_FIELDS.items()},
        "hbm_stacks": stacks,
    }


def read_rocm_smi(gpu: RocmSmiGpu) -> Fields:
    """The limits, and the sensors that gpu_metrics lacks, from calls, in millidegrees."""

    def ask(sensor: str, what: int, every: float) -> object:
        kind = ROCM_SMI_SENSORS[sensor]
        return gpu.get("rsmi_dev_temp_metric_get", "int64", kind, what, every=every)

    def limits(what: int) -> dict[str, Value]:
        return {
            sensor: limit_celsius(ask(sensor, what, SLOW), scale=0.001)
            for sensor in ROCM_SMI_SENSORS
        }

    return {
        "sensors": {
            sensor: celsius(ask(sensor, _CURRENT, POLL), scale=0.001)
            for sensor in ROCM_SMI_SENSORS
            if isinstance(celsius(gpu.metric(METRICS_FIELDS[sensor])), Absent)
        },
        "critical": limits(_CRITICAL),
        "emergency": limits(_EMERGENCY),
    }


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From hwmon, in millidegrees, found by label."""
    channels = gpu.hwmon("temp")
    return {
        "sensors": {
            sensor: celsius(gpu.text(f"{channels[label]}_input"), scale=0.001)
            if label in channels
            else Absent(NOT_SUPPORTED, f"hwmon has no channel labelled {label}")
            for sensor, label in HWMON_LABELS.items()
        }
    }


def read_sysfs_limits(gpu: SysfsGpu) -> Fields:
    """The limits, from hwmon; on a slower clock, since they change with the firmware alone."""
    channels = gpu.hwmon("temp")

    def limits(suffix: str) -> dict[str, Value]:
        return {
            sensor: limit_celsius(gpu.text(f"{channels[label]}_{suffix}", SLOW), scale=0.001)
            for sensor, label in HWMON_LABELS.items()
            if label in channels
        }

    return {"critical": limits("crit"), "emergency": limits("emergency")}


COLLECTOR = Collector(
    name="temperature",
    summary="temperatures of the sensors and HBM stacks, and the device's limits",
    reading=Temperature,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("rocm_smi", read_amdsmi),  # it has the same table
        Reader("sysfs", read_sysfs_limits, every=SLOW),  # before ROCm SMI, which can rest then
        Reader("rocm_smi", read_rocm_smi),
        Reader("sysfs", read_sysfs),
    ),
    vital=("sensors",),
    metrics=(
        Metric(
            "amdgpu_temperature_celsius",
            "gauge",
            "Temperature of a sensor (gpu_metrics temperature_*; hwmon temp*_input).",
            lambda t: t.sensors,
            ("sensor",),
        ),
        Metric(
            "amdgpu_hbm_temperature_celsius",
            "gauge",
            "Temperature of the hottest HBM (gpu_metrics temperature_mem; hwmon mem).",
            lambda t: t.sensors.get("hbm"),
        ),
        Metric(
            "amdgpu_hbm_stack_temperature_celsius",
            "gauge",
            "Temperature of one HBM stack (gpu_metrics temperature_hbm, temperature_hbm_stacks).",
            lambda t: t.hbm_stacks,
            ("stack",),
        ),
        Metric(
            "amdgpu_temperature_limit_celsius",
            "gauge",
            "The device's own limits: critical throttles, emergency shuts down (hwmon temp*_crit, "
            "temp*_emergency); configured_* is the fallback from the configuration.",
            lambda t: {
                (sensor, limit): value
                for limit, values in (
                    ("critical", t.critical),
                    ("emergency", t.emergency),
                    ("configured_warning", t.configured_warning),
                    ("configured_critical", t.configured_critical),
                )
                for sensor, value in values.items()
            },
            ("sensor", "limit"),
        ),
    ),
    derived=(
        Setting("configured_warning", "temperature_warning", where="sensors", unless="critical"),
        Setting("configured_critical", "temperature_critical", where="sensors", unless="critical"),
    ),
    why_absent={
        "hbm_stacks": "MI100 and MI200 tell it, newer ones with a driver that fills the table",
    },
)
