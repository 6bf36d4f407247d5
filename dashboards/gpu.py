"""GPU: one device, or a few, in all detail."""

from __future__ import annotations

from dashboards.model import (
    NONE_IS_GOOD,
    OF_GPU,
    ONE_IS_GOOD,
    YES_OR_NO,
    Annotation,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    above,
    below,
    stat,
)
from dashboards.queries import PEER


def _headroom(sensor: str) -> str:
    limits = f'{{GPU, sensor="{sensor}", limit=~"critical|configured_critical"}}'
    return (
        f"min(min by (<gpu>) (amdgpu_temperature_limit_celsius{limits})"
        f' - max by (<gpu>) (amdgpu_temperature_celsius{{GPU, sensor="{sensor}"}}))'
    )


_STATE = Row(
    "State",
    (
        stat(
            "Answers",
            "Whether the GPU answered the last poll.",
            "min(amdgpu_up{GPU})",
            thresholds=ONE_IS_GOOD,
            names=YES_OR_NO,
            see=Link("amdgpu-node", "GPUs that answer"),
        ),
        stat(
            "Junction head-room",
            "To the critical limit of the junction, where the device throttles.",
            _headroom("junction"),
            unit="celsius",
            thresholds=below(10, 5),
        ),
        stat(
            "HBM head-room",
            "To the critical limit of the HBM.",
            _headroom("hbm"),
            unit="celsius",
            thresholds=below(10, 5),
        ),
        stat(
            "Power of the limit",
            "Power over the limit in force.",
            "max(amdgpu_power_watts{GPU} / amdgpu_power_limit_watts{GPU})",
            unit="percentunit",
        ),
        stat(
            "VRAM used",
            "Share of the memory in use.",
            "max(sum by (<gpu>) (amdgpu_vram_used_bytes{GPU})"
            " / sum by (<gpu>) (amdgpu_vram_total_bytes{GPU}))",
            unit="percentunit",
            thresholds=above(0.9, 0.97),
            see=Link("amdgpu-memory", "VRAM used"),
        ),
        stat(
            "Uncorrectable errors",
            "Uncorrectable ECC errors in the time shown, all blocks.",
            'sum(increase(amdgpu_ecc_errors_total{GPU, severity="uncorrectable"}[$__range]))',
            thresholds=NONE_IS_GOOD,
            decimals=0,
            see=Link("amdgpu-reliability", "ECC errors by block"),
        ),
    ),
)

_HEAT = Row(
    "Heat",
    (
        Panel(
            "Temperatures and limits",
            "All sensors, and as dashed lines the limits: critical throttles, emergency shuts "
            "down; configured ones stand in where the device reports none.",
            "celsius",
            (
                Query("amdgpu_temperature_celsius{GPU}", f"{OF_GPU} {{{{sensor}}}}"),
                Query(
                    'amdgpu_temperature_limit_celsius{GPU, limit=~"critical|configured_critical"}',
                    f"{OF_GPU} {{{{sensor}}}} {{{{limit}}}}",
                    dashed=True,
                ),
            ),
            width=12,
            height=9,
        ),
        Panel(
            "HBM stacks",
            "Each stack, where the hardware tells; one that is hotter than its neighbours points "
            "to cooling. The hottest HBM is always shown.",
            "celsius",
            (
                Query(
                    "amdgpu_hbm_stack_temperature_celsius{GPU}",
                    f"{OF_GPU} stack {{{{stack}}}}",
                ),
                Query("amdgpu_hbm_temperature_celsius{GPU}", f"{OF_GPU} hottest"),
            ),
            height=9,
        ),
    ),
)

_SPEED = Row(
    "Clock, power and throttling, to be read together",
    (
        Panel(
            "Compute clock",
            "Mean over the dies that have it, and as a dashed line the highest. A low clock of a "
            "busy GPU has its reason below.",
            "hertz",
            (
                Query('amdgpu_clock_hertz{GPU, clock="gfx"}'),
                Query('amdgpu_clock_max_hertz{GPU, clock="gfx"}', f"{OF_GPU} highest", dashed=True),
            ),
            width=24,
            height=6,
            low=0,
        ),
        Panel(
            "Power and limit",
            "From the energy counter, with the limit in force as a dashed line.",
            "watt",
            (
                Query("rate(amdgpu_energy_joules_total{GPU}[$__rate_interval])"),
                Query("amdgpu_power_limit_watts{GPU}", f"{OF_GPU} limit", dashed=True),
            ),
            width=24,
            height=6,
            low=0,
        ),
        Panel(
            "Throttling",
            "Share of time that each reason throttled. Power is normal at the cap; heat, voltage "
            "regulators and PROCHOT are not. Reasons can overlap.",
            "percentunit",
            (
                Query(
                    "rate(amdgpu_throttle_seconds_total{GPU}[$__rate_interval])",
                    f"{OF_GPU} {{{{reason}}}}",
                ),
            ),
            width=24,
            height=6,
            low=0,
            stacked=True,
        ),
    ),
)

_WORK = Row(
    "Work and memory",
    (
        Panel(
            "Activity of the engines",
            "Share of time that compute engines and memory controllers worked (counters), and "
            "the video engines (gauge). On a partitioned device, each partition.",
            "percentunit",
            (
                Query(
                    "rate(amdgpu_gfx_active_seconds_total{GPU}[$__rate_interval])",
                    f"{OF_GPU} compute {{{{partition}}}}",
                ),
                Query(
                    "rate(amdgpu_memory_active_seconds_total{GPU}[$__rate_interval])",
                    f"{OF_GPU} memory {{{{partition}}}}",
                ),
                Query("amdgpu_media_activity_ratio{GPU}", f"{OF_GPU} video {{{{partition}}}}"),
            ),
            low=0,
            high=1,
        ),
        Panel(
            "VRAM, its floor and its owners",
            "Memory of each process, stacked, and as dashed lines the memory in use and its floor, "
            "the least of the last hour. A floor that climbs while the owners don't is a leak.",
            "bytes",
            (
                Query(
                    "amdgpu_process_vram_bytes{GPU}"
                    " * on (<node>, pid) group_left (command)"
                    " max by (<node>, pid, command) (amdgpu_process_info{NODE})",
                    f"{OF_GPU} {{{{command}}}} {{{{pid}}}} {{{{partition}}}}",
                ),
                Query(
                    "sum by (<gpu>) (amdgpu_vram_used_bytes{GPU})", f"{OF_GPU} used", dashed=True
                ),
                Query(
                    "sum by (<gpu>) (min_over_time(amdgpu_vram_used_bytes{GPU}[1h]))",
                    f"{OF_GPU} floor",
                    dashed=True,
                ),
            ),
            low=0,
            stacked=True,
            see=Link("amdgpu-memory", "Floor of use"),
        ),
    ),
)

_LINKS = Row(
    "Links and errors",
    (
        Panel(
            "XGMI sent",
            "Bytes per second sent over each link.",
            "Bps",
            (
                Query(
                    f"rate(amdgpu_xgmi_transmit_bytes_total{{GPU}}[$__rate_interval]) * {PEER}",
                    f"{OF_GPU} to {{{{to}}}}",
                ),
            ),
            width=8,
            low=0,
            see=Link("amdgpu-interconnect", "XGMI matrix"),
        ),
        Panel(
            "PCIe replays",
            "Packets sent again, per minute. Any steady rate points to the slot, riser or cable.",
            "none",
            (Query("rate(amdgpu_pcie_replays_total{GPU}[$__rate_interval]) * 60"),),
            width=8,
            low=0,
            see=Link("amdgpu-interconnect", "PCIe replays"),
        ),
        Panel(
            "ECC errors",
            "Errors per minute by severity, all blocks.",
            "none",
            (
                Query(
                    "sum by (<gpu>, severity)"
                    " (rate(amdgpu_ecc_errors_total{GPU}[$__rate_interval])) * 60",
                    f"{OF_GPU} {{{{severity}}}}",
                ),
            ),
            width=8,
            low=0,
            see=Link("amdgpu-reliability", "ECC errors by block"),
        ),
    ),
)

DASHBOARD = Dashboard(
    "gpu",
    "AMD GPU / GPU",
    "One GPU in detail: temperatures with their limits, what holds the clock back, memory with "
    "its owners, links and errors.",
    (_STATE, _HEAT, _SPEED, _WORK, _LINKS),
    instances="one",
    gpus="one",
    annotations=(
        Annotation("GPU does not answer", "amdgpu_up{GPU} == 0"),
        Annotation(
            "Uncorrectable error",
            'sum by (<gpu>) (increase(amdgpu_ecc_errors_total{GPU, severity="uncorrectable"}'
            "[$__rate_interval])) > 0",
            "orange",
        ),
    ),
)
