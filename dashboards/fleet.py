"""Fleet overview: what is wrong, where, and what is closest to going wrong."""

from __future__ import annotations

from dashboards.model import (
    NONE_IS_GOOD,
    OF_NODE,
    ONE_IS_GOOD,
    PLAIN,
    YES_OR_NO,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    Thresholds,
    above,
    below,
    stat,
)
from dashboards.queries import HEADROOM

_WRONG = Row(
    "What is wrong now",
    (
        stat(
            "Nodes blind",
            "Targets that Prometheus can't scrape: of their GPUs nothing is known.",
            "sum(1 - up{NODE})",
            thresholds=NONE_IS_GOOD,
        ),
        stat(
            "Polls stale",
            "Exporters that answer, but whose last poll is more than six intervals old.",
            """sum(
              time() - amdgpu_exporter_last_poll_timestamp_seconds{NODE}
              > bool 6 * amdgpu_exporter_poll_interval_seconds{NODE}
            )""",
            thresholds=NONE_IS_GOOD,
            see=Link("amdgpu-reliability", "Age of the last poll"),
        ),
        stat(
            "GPUs missing",
            "GPUs fewer than the configuration expects, by the view that counts the fewest. "
            "Nodes without expected_gpus are left out.",
            """sum(
              clamp_min(
                max by (<node>) (amdgpu_devices{NODE, view="expected"})
                - min by (<node>) (amdgpu_devices{NODE, view=~"pci|drm"}), 0
              )
            )""",
            thresholds=NONE_IS_GOOD,
        ),
        stat(
            "GPUs not answering",
            "GPUs seen in this boot that did not answer the last poll.",
            "sum(1 - amdgpu_up{NODE})",
            thresholds=NONE_IS_GOOD,
            see=Link("amdgpu-reliability", "GPUs answering"),
        ),
        stat(
            "XGMI ends down",
            "Ends of links that are down; a broken link counts at both ends.",
            "sum(amdgpu_xgmi_link_up{NODE} == bool 0)",
            thresholds=NONE_IS_GOOD,
            see=Link("amdgpu-interconnect", "Links that are down"),
        ),
        stat(
            "Nodes simulated",
            "Nodes whose every value is made up. Not 0 in production is a mistake.",
            "sum(amdgpu_exporter_simulated{NODE})",
            thresholds=Thresholds("green", ((1, "orange"),)),
        ),
    ),
)

_NODES = Row(
    "Nodes",
    (
        Panel(
            "Nodes at a glance",
            "One line per node. Errors are those of the time shown; head-room is that of its "
            "hottest sensor to the critical limit. Click a node for its dashboard.",
            "none",
            (
                Query(
                    "max by (<node>) (up{NODE})",
                    "scraped",
                    thresholds=ONE_IS_GOOD,
                    names=YES_OR_NO,
                ),
                Query("count by (<node>) (amdgpu_up{NODE})", "GPUs"),
                Query(
                    "sum by (<node>) (1 - amdgpu_up{NODE})",
                    "not answering",
                    thresholds=NONE_IS_GOOD,
                ),
                Query(f"min by (<node>) ({HEADROOM})", "head-room", "celsius", below(10, 5)),
                Query(
                    "avg by (<node>) (rate(amdgpu_gfx_active_seconds_total{NODE}"
                    "[$__rate_interval]))",
                    "activity",
                    "percentunit",
                ),
                Query(
                    "sum by (<node>) (amdgpu_vram_used_bytes{NODE})"
                    " / sum by (<node>) (amdgpu_vram_total_bytes{NODE})",
                    "VRAM used",
                    "percentunit",
                    above(0.9, 0.97),
                ),
                Query(
                    "sum by (<node>) (rate(amdgpu_energy_joules_total{NODE}[$__rate_interval]))",
                    "power",
                    "watt",
                ),
                Query(
                    "sum by (<node>) (amdgpu_xgmi_link_up{NODE} == bool 0)",
                    "XGMI ends down",
                    thresholds=NONE_IS_GOOD,
                ),
                Query(
                    """sum by (<node>) (
                      amdgpu_pcie_link_transfers_per_second{NODE}
                      * amdgpu_pcie_link_width_lanes{NODE}
                      < bool amdgpu_pcie_link_max_transfers_per_second{NODE}
                      * amdgpu_pcie_link_max_width_lanes{NODE}
                    )""",
                    "PCIe degraded",
                    thresholds=Thresholds("green", ((1, "orange"),)),
                ),
                Query(
                    "round(sum by (<node>) (increase(amdgpu_ecc_errors_total{NODE, "
                    'severity="uncorrectable"}[$__range])))',
                    "uncorrectable",
                    thresholds=NONE_IS_GOOD,
                ),
            ),
            "table",
            PLAIN,
            width=24,
            labels=("instance",),
            drill="amdgpu-node",
            sort="-scraped",
        ),
    ),
)

_LIMITS = Row(
    "Closest to a limit",
    (
        Panel(
            "Worst 20 by head-room",
            "The sensors nearest to the critical limit of their device, or to the configured one. "
            "At 0 °C the device throttles.",
            "celsius",
            (Query(f"bottomk(20, {HEADROOM})", "head-room"),),
            "table",
            below(10, 5),
            labels=("instance", "gpu", "sensor"),
            sort="-head-room",
            drill="amdgpu-gpu",
        ),
        Panel(
            "Head-room of each node's hottest sensor",
            "How far each node is from its first critical limit. No average: one hot GPU matters.",
            "celsius",
            (Query(f"min by (<node>) ({HEADROOM})", OF_NODE),),
            thresholds=below(10, 5),
            drill="amdgpu-node",
        ),
    ),
)

_LOAD = Row(
    "Load",
    (
        Panel(
            "Activity",
            "Share of time that the compute engines worked, over the node's GPUs (from the "
            "counter of active seconds, so nothing between two scrapes is lost).",
            "percentunit",
            (
                Query(
                    "avg by (<node>) (rate(amdgpu_gfx_active_seconds_total{NODE}"
                    "[$__rate_interval]))",
                    OF_NODE,
                ),
            ),
            width=8,
            low=0,
            high=1,
            drill="amdgpu-node",
        ),
        Panel(
            "Power",
            "Power of the GPUs of each node, from their energy counters.",
            "watt",
            (
                Query(
                    "sum by (<node>) (rate(amdgpu_energy_joules_total{NODE}[$__rate_interval]))",
                    OF_NODE,
                ),
            ),
            width=8,
            low=0,
            stacked=True,
            drill="amdgpu-node",
            see=Link("amdgpu-capacity", "Energy per cluster"),
        ),
        Panel(
            "Thermal throttling",
            "Share of time that heat or PROCHOT held back the worst GPU of each node. Throttling "
            "at the power cap is normal and not shown here.",
            "percentunit",
            (
                Query(
                    'max by (<node>) (rate(amdgpu_throttle_seconds_total{NODE, reason!="power"}'
                    "[$__rate_interval]))",
                    OF_NODE,
                ),
            ),
            thresholds=Thresholds("green", ((0.05, "orange"),)),
            width=8,
            low=0,
            drill="amdgpu-node",
            see=Link("amdgpu-gpu", "Throttling"),
        ),
    ),
)

_VERSIONS = Row(
    "Versions",
    (
        Panel(
            "Software of the nodes",
            "Nodes by the versions they run. More than one line within a cluster deserves a look.",
            "none",
            (
                Query(
                    "count by (driver_version, rocm_version, amdsmi_version, kernel_version)"
                    " (amdgpu_node_info{NODE})",
                    "nodes",
                ),
            ),
            "table",
            labels=("driver_version", "rocm_version", "amdsmi_version", "kernel_version"),
            height=5,
        ),
        Panel(
            "Firmware that differs",
            "Firmware blocks of which the selected nodes run more than one version. Different "
            "models have different firmware.",
            "none",
            (
                Query(
                    """sum by (block, version) (amdgpu_firmware_devices{NODE})
                    and on (block)
                    count by (block) (count by (block, version) (amdgpu_firmware_devices{NODE}))
                    > 1""",
                    "GPUs",
                ),
            ),
            "table",
            labels=("block", "version"),
            height=5,
            width=6,
        ),
        Panel(
            "Exporter versions",
            "Nodes by the version of the exporter.",
            "none",
            (
                Query(
                    "count by (version, python_version) (amdgpu_exporter_build_info{NODE})",
                    "nodes",
                ),
            ),
            "table",
            labels=("version", "python_version"),
            height=5,
            width=6,
        ),
    ),
)

DASHBOARD = Dashboard(
    "fleet",
    "AMD GPU / Fleet overview",
    "What is wrong in the fleet, which GPUs are closest to a limit, and which versions differ.",
    (_WRONG, _NODES, _LIMITS, _LOAD, _VERSIONS),
)
