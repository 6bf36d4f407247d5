"""What is read: one file per telemetry domain, and the one registry of them.

Flags, the support report, the metric reference and the tests all come from `COLLECTORS`.
"""

from __future__ import annotations

from typing import Any

from exporter.collectors import (
    activity,
    allocations,
    clocks,
    fan,
    firmware,
    host_limit,
    identity,
    leaks,
    memory,
    partition,
    pcie,
    pcie_traffic,
    power,
    processes,
    ras,
    temperature,
    throttle,
    xcc,
    xgmi,
)
from exporter.collectors.base import Collector

COLLECTORS: tuple[Collector[Any], ...] = (
    identity.COLLECTOR,
    temperature.COLLECTOR,
    power.COLLECTOR,
    clocks.COLLECTOR,
    activity.COLLECTOR,
    memory.COLLECTOR,
    processes.COLLECTOR,
    allocations.COLLECTOR,
    leaks.COLLECTOR,
    xgmi.COLLECTOR,
    pcie.COLLECTOR,
    ras.COLLECTOR,
    throttle.COLLECTOR,
    fan.COLLECTOR,
    firmware.COLLECTOR,
    partition.COLLECTOR,
    xcc.COLLECTOR,
    host_limit.COLLECTOR,
    pcie_traffic.COLLECTOR,
)
BY_NAME = {collector.name: collector for collector in COLLECTORS}
