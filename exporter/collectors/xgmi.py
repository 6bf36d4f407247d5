"""XGMI: the links between GPUs.

    amdgpu_xgmi_receive_bytes_total{link="0",peer="0000:19:00.0"} 1.0e+12
    amdgpu_xgmi_receive_bytes_per_second{link="0",peer="0000:19:00.0"} 3.1e+10
    amdgpu_xgmi_link_up{link="0",peer="0000:19:00.0"} 1
    amdgpu_xgmi_errors_total{severity="correctable"} 0

From gpu_metrics 1.4 and newer (MI300 on): xgmi_read_data_acc and xgmi_write_data_acc in KB since
the driver was loaded, xgmi_link_width in lanes, xgmi_link_speed in Gb/s per lane, and from 1.7 on
xgmi_link_status. Whether KB means 1000 or 1024 bytes is not documented; 1024 is assumed. MI200
reports none of it: its gpu_metrics has no XGMI fields and its kernel driver no counters. The peer
comes from xgmi_port_num and xgmi_hive_info, errors from the RAS block xgmi_wafl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exporter.collectors.base import Collector, Metric, Rate, Reader
from exporter.sources.guard import counter, number
from exporter.sources.ras import error_counts
from exporter.sources.session import SLOW, STATIC
from exporter.values import NOT_SUPPORTED, Absent, Fields, Scalar, Value

if TYPE_CHECKING:
    from exporter.sources.amdsmi import AmdSmiGpu
    from exporter.sources.sysfs import SysfsGpu

KILOBYTE = 1024
_NO_COUNTERS = Absent(NOT_SUPPORTED, "gpu_metrics has XGMI fields from 1.4 on; MI200 has none")


@dataclass(frozen=True, slots=True)
class Xgmi:
    """All links of a device; every mapping is by the link's number.

    Attributes:
        received, transmitted: bytes since the driver was loaded.
        receive_rate, transmit_rate: bytes per second over the last poll.
        up: 1 if the link works, else 0; a link that was never wired is missing.
        max_rate: bytes per second one way, from width and speed.
        peers: the PCI address at the other end, as last known.
        errors: by severity, from the RAS block.
        clock: the hardware's own time in seconds, for the rates.
    """

    received: Mapping[str, int] = field(default_factory=dict)
    transmitted: Mapping[str, int] = field(default_factory=dict)
    receive_rate: Mapping[str, float] = field(default_factory=dict)
    transmit_rate: Mapping[str, float] = field(default_factory=dict)
    up: Mapping[str, int] = field(default_factory=dict)
    max_rate: Mapping[str, float] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    clock: float | None = None


def from_metrics(metric: Any) -> Fields:
    """The fields from a gpu_metrics table, read by `metric(name)`; both libraries have it.

    A link is wired where the firmware gives it a status of up or down. Tables before 1.7 have no
    status, or, as AMD SMI 10.1 passes them on, one without a value for any link; there a
    link is taken to be wired once it has carried a byte.
    """
    status, read, written = (
        metric(name) for name in ("xgmi_link_status", "xgmi_read_data_acc", "xgmi_write_data_acc")
    )
    if not isinstance(read, list) or not isinstance(written, list):
        return {"received": {"0": _NO_COUNTERS if not isinstance(read, Absent) else read}}
    speed = number(metric("xgmi_link_speed"), scale=1e9, low=1, high=1e13)
    width = number(metric("xgmi_link_width"), low=1, high=64)
    states = [number(raw, high=1) for raw in status] if isinstance(status, list) else []
    told = any(not isinstance(state, Absent) for state in states)
    fields: dict[str, dict[str, Value]] = {
        name: {} for name in ("received", "transmitted", "up", "max_rate")
    }
    for position, raws in enumerate(zip(read, written, strict=False)):
        link = str(position)
        incoming, outgoing = (counter(raw, bits=64, scale=KILOBYTE) for raw in raws)
        if told:
            if position >= len(states) or isinstance(states[position], Absent):
                continue  # never wired
            fields["up"][link] = states[position]
        elif isinstance(incoming, Absent) or not (incoming or outgoing):
            continue
        fields["received"][link] = incoming
        fields["transmitted"][link] = outgoing
        if isinstance(speed, (int, float)) and isinstance(width, (int, float)):
            fields["max_rate"][link] = width * speed / 8
    return fields


def read_amdsmi(gpu: AmdSmiGpu) -> Fields:
    """From gpu_metrics."""
    return {
        **from_metrics(gpu.metric),
        "clock": counter(gpu.metric("system_clock_counter"), bits=64, scale=1e-9),
    }


_PORT = re.compile(r"([0-9a-f]+):([0-9a-f]+)\s*->\s*([0-9a-f]+):([0-9a-f]+)")


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """Peers (`xgmi_port_num`: node:port -> node:port, hexadecimal) and RAS errors."""
    fields: dict[str, Mapping[str, Value]] = {
        "errors": error_counts(gpu.text("ras/xgmi_wafl_err_count", SLOW))
    }
    ports = gpu.text("xgmi_port_num", STATIC)
    if not isinstance(ports, Absent):
        fields["peers"] = {
            str(int(port, 16)): gpu.target(f"xgmi_hive_info/node{int(node, 16)}")
            for _, port, node, _ in _PORT.findall(ports)
        }
    return fields


def _by_link(values: Mapping[str, Scalar], x: Xgmi) -> dict[tuple[str, str], Scalar]:
    return {(link, x.peers.get(link, "")): value for link, value in values.items()}


_LINK = ("link", "peer")

COLLECTOR = Collector(
    name="xgmi",
    summary="XGMI links: traffic, bandwidth, state and errors",
    reading=Xgmi,
    readers=(
        Reader("amdsmi", read_amdsmi),
        Reader("rocm_smi", read_amdsmi),  # it has the same table
        Reader("sysfs", read_sysfs, every=SLOW),
    ),
    counters=(
        "received",
        "transmitted",
        "errors",
    ),
    metrics=(
        Metric(
            "amdgpu_xgmi_receive_bytes_total",
            "counter",
            "Bytes received over the link since the driver was loaded (gpu_metrics "
            "xgmi_read_data_acc, KB taken as 1024 bytes).",
            lambda x: _by_link(x.received, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_transmit_bytes_total",
            "counter",
            "Bytes sent over the link since the driver was loaded (gpu_metrics "
            "xgmi_write_data_acc, KB taken as 1024 bytes).",
            lambda x: _by_link(x.transmitted, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_receive_bytes_per_second",
            "gauge",
            "Bandwidth received over the last poll, by the hardware's clock (gpu_metrics "
            "xgmi_read_data_acc).",
            lambda x: _by_link(x.receive_rate, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_transmit_bytes_per_second",
            "gauge",
            "Bandwidth sent over the last poll, by the hardware's clock (gpu_metrics "
            "xgmi_write_data_acc).",
            lambda x: _by_link(x.transmit_rate, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_link_up",
            "gauge",
            "1 if the link is up, 0 if it is down (gpu_metrics xgmi_link_status).",
            lambda x: _by_link(x.up, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_link_max_bytes_per_second",
            "gauge",
            "Highest bandwidth one way (gpu_metrics xgmi_link_width x xgmi_link_speed).",
            lambda x: _by_link(x.max_rate, x),
            _LINK,
        ),
        Metric(
            "amdgpu_xgmi_errors_total",
            "counter",
            "XGMI errors since the driver was loaded (ras/xgmi_wafl_err_count).",
            lambda x: x.errors,
            ("severity",),
        ),
    ),
    derived=(
        Rate("receive_rate", of="received", clock="clock"),
        Rate("transmit_rate", of="transmitted", clock="clock"),
    ),
    why_absent={
        "received": "MI200 and older tell the libraries no XGMI traffic; MI300 and newer do",
        "transmitted": "MI200 and older tell the libraries no XGMI traffic; MI300 and newer do",
        "up": "in gpu_metrics from 1.7 on (MI300 and newer)",
        "max_rate": "in gpu_metrics from 1.4 on (MI300 and newer)",
    },
)
