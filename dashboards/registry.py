"""The one list of dashboards."""

from __future__ import annotations

from dashboards import capacity, fleet, gpu, interconnect, memory, node, reliability
from dashboards.model import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    fleet.DASHBOARD,
    node.DASHBOARD,
    gpu.DASHBOARD,
    interconnect.DASHBOARD,
    memory.DASHBOARD,
    reliability.DASHBOARD,
    capacity.DASHBOARD,
)
