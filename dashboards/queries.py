"""Queries that several dashboards share."""

from __future__ import annotations

HEADROOM = """
    min by (<gpu>, sensor) (
      amdgpu_temperature_limit_celsius{NODE, limit=~"critical|configured_critical"}
    ) - max by (<gpu>, sensor) (amdgpu_temperature_celsius{NODE})
"""
"""Degrees that each sensor has left to its critical limit."""

PEER = """
    on (<node>, peer) group_left (to)
    group by (<node>, peer, to) (
      label_replace(
        label_replace(amdgpu_up{NODE}, "peer", "$1", "pci_address", "(.+)"),
        "to", "GPU $1", "gpu", "(.+)"
      )
    )
"""
"""Multiplied with a query over links, names the GPU of the peer, a PCI address, as label `to`."""
