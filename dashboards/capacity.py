"""Capacity: what is allocated, what works, what is left, and what it costs."""

from __future__ import annotations

from dashboards.model import (
    Dashboard,
    Panel,
    Query,
    Row,
    Thresholds,
    below,
    stat,
)

_ACTIVE = (
    "avg by (<gpu>, partition) (rate(amdgpu_gfx_active_seconds_total{NODE}[$__rate_interval]))"
)
_ALLOCATED = "max by (<gpu>, partition, namespace, user) (amdgpu_allocation_info{NODE})"
_HELD = "sum by (<gpu>) (amdgpu_processes{NODE}) > 0"
_FREE = "sum by (<gpu>) (amdgpu_processes{NODE}) == bool 0"
_VRAM_FREE = (
    "1 - sum by (<gpu>) (amdgpu_vram_used_bytes{NODE})"
    " / sum by (<gpu>) (amdgpu_vram_total_bytes{NODE})"
)
_ENERGY = "increase(amdgpu_energy_joules_total{NODE}[$__range])"

_STATE = Row(
    "Now",
    (
        stat("GPUs", "GPUs that answer.", "sum(amdgpu_up{NODE})"),
        stat(
            "GPUs held",
            "GPUs on which some process holds memory.",
            f"count({_HELD})",
        ),
        stat(
            "GPUs active",
            "Compute activity of all GPUs, added up: 8 GPUs at a half count as 4.",
            "sum(avg by (<gpu>) (rate(amdgpu_gfx_active_seconds_total{NODE}[$__rate_interval])))",
            decimals=1,
        ),
        stat(
            "Whole nodes free",
            "Nodes none of whose GPUs is held: room for a job that needs a whole node.",
            f"sum(min by (<node>) ({_FREE}))",
        ),
        stat(
            "Scattered GPUs free",
            "Free GPUs on nodes that others work on: of use to small jobs only.",
            f"sum(sum by (<node>) ({_FREE}) unless on (<node>) min by (<node>) ({_FREE}) == 1)",
        ),
        stat(
            "Active by the trend",
            "GPUs active after as long again as the time shown, if its trend goes on: choose a "
            "month to look a month ahead.",
            "clamp(predict_linear(sum(avg by (<gpu>)"
            " (rate(amdgpu_gfx_active_seconds_total{NODE}[1h])))[$__range:1h], $__range_s),"
            " 0, scalar(count(amdgpu_up{NODE})))",
            decimals=1,
        ),
    ),
)

_ALLOCATION = Row(
    "Allocated against active (needs --collector.allocations)",
    (
        Panel(
            "Allocated GPUs",
            "GPUs, or partitions, that the scheduler gave to each namespace (Kubernetes) or user "
            "(Slurm), whether they work or not.",
            "none",
            (
                Query(
                    f"count by (namespace, user) ({_ALLOCATED})",
                    "{{namespace}} {{user}}",
                ),
            ),
            width=8,
            low=0,
            stacked=True,
        ),
        Panel(
            "Active GPUs of those allocated",
            "Compute activity on what each namespace or user was given, added up. The gap to the "
            "panel on the left is waste.",
            "none",
            (
                Query(
                    "sum by (namespace, user) ("
                    f"{_ALLOCATED} * on (<gpu>, partition) group_left {_ACTIVE})",
                    "{{namespace}} {{user}}",
                ),
            ),
            width=8,
            low=0,
            stacked=True,
        ),
        Panel(
            "GPU-hours",
            "GPU-hours of each namespace or user in the time shown: allocated, active, and the "
            "share of the allocated ones that was active.",
            "h",
            (
                Query(
                    f"sum by (namespace, user) (sum_over_time(({_ALLOCATED})[$__range:5m])) / 12",
                    "allocated",
                ),
                Query(
                    "sum by (namespace, user) (sum_over_time(("
                    f"{_ALLOCATED} * on (<gpu>, partition) group_left {_ACTIVE}"
                    ")[$__range:5m])) / 12",
                    "active",
                ),
                Query(
                    "sum by (namespace, user) (sum_over_time(("
                    f"{_ALLOCATED} * on (<gpu>, partition) group_left {_ACTIVE}"
                    ")[$__range:5m]))"
                    " / sum by (namespace, user)"
                    f" (sum_over_time(({_ALLOCATED})[$__range:5m]))",
                    "active share",
                    "percentunit",
                    below(0.5, 0.2),
                ),
            ),
            "table",
            width=8,
            labels=("namespace", "user"),
            sort="allocated",
            decimals=1,
        ),
    ),
)

_IDLE = Row(
    "Held but idle",
    (
        Panel(
            "GPUs held but idle",
            "GPUs on which a process holds memory while the compute engines worked less than 2 % "
            "of the last two hours.",
            "percentunit",
            (
                Query(
                    "max by (<gpu>) (rate(amdgpu_gfx_active_seconds_total{NODE}[2h])) < 0.02"
                    f" and on (<gpu>) {_HELD}",
                    "activity over 2 h",
                ),
                Query(
                    "sum by (<gpu>) (amdgpu_vram_used_bytes{NODE}) and on (<gpu>) ("
                    "max by (<gpu>) (rate(amdgpu_gfx_active_seconds_total{NODE}[2h])) < 0.02"
                    f" and on (<gpu>) {_HELD})",
                    "VRAM held",
                    "bytes",
                ),
            ),
            "table",
            labels=("instance", "gpu"),
            sort="VRAM held",
            decimals=1,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Free, held, active",
            "GPUs over time: all that answer, those that are held, and the work they do.",
            "none",
            (
                Query("sum(amdgpu_up{NODE})", "answering"),
                Query(f"count({_HELD})", "held"),
                Query(f"sum(avg by (<gpu>) ({_ACTIVE}))", "active"),
            ),
            low=0,
        ),
    ),
)

_ROOM = Row(
    "Head-room and trend",
    (
        Panel(
            "VRAM free",
            "Share of each GPU's memory that is free: median, the fullest twentieth, and the "
            "fullest GPU. No averages: the fullest GPU decides what fits.",
            "percentunit",
            (
                Query(f"quantile(0.5, {_VRAM_FREE})", "median"),
                Query(f"quantile(0.05, {_VRAM_FREE})", "19 of 20 have more"),
                Query(f"min({_VRAM_FREE})", "fullest GPU"),
            ),
            width=8,
            low=0,
            high=1,
        ),
        Panel(
            "Activity, by the hour",
            "Mean compute activity of each cluster over the last hour, for the trend over weeks.",
            "percentunit",
            (
                Query(
                    "avg by (cluster, job) (rate(amdgpu_gfx_active_seconds_total{NODE}[1h]))",
                    "{{cluster}} {{job}}",
                ),
            ),
            width=8,
            low=0,
            high=1,
        ),
        Panel(
            "Processes per GPU",
            "The most processes that share a GPU or partition of each node.",
            "none",
            (Query("max by (<node>) (amdgpu_processes{NODE})", "{{instance}}"),),
            width=8,
            low=0,
            drill="amdgpu-node",
        ),
    ),
)

_COST = Row(
    "Energy",
    (
        stat(
            "Energy",
            "Of all GPUs in the time shown; hosts, fans and cooling come on top.",
            f"sum({_ENERGY}) / 3.6e6",
            unit="kwatth",
            width=6,
            decimals=1,
        ),
        stat(
            "Cost of energy",
            "At the price above, in its currency.",
            f"sum({_ENERGY}) / 3.6e6 * $price",
            width=6,
            decimals=2,
        ),
        stat(
            "Cost of energy per month",
            "If the power of the time shown goes on.",
            f"sum({_ENERGY}) / $__range_s * 2629800 / 3.6e6 * $price",
            width=6,
            decimals=0,
        ),
        stat(
            "Energy used while idle",
            "Share of the energy that GPUs used which worked less than 2 % of the time shown.",
            f"(sum({_ENERGY} and on (<gpu>) max by (<gpu>)"
            " (rate(amdgpu_gfx_active_seconds_total{NODE}[$__range])) < 0.02)"
            f" or 0 * sum({_ENERGY})) / sum({_ENERGY})",
            unit="percentunit",
            thresholds=Thresholds("green", ((0.1, "orange"),)),
            width=6,
            decimals=1,
        ),
        Panel(
            "Energy per cluster",
            "Power of the GPUs of each cluster, from their energy counters.",
            "watt",
            (
                Query(
                    "sum by (cluster, job)"
                    " (rate(amdgpu_energy_joules_total{NODE}[$__rate_interval]))",
                    "{{cluster}} {{job}}",
                ),
            ),
            low=0,
            stacked=True,
        ),
        Panel(
            "Energy by node",
            "Energy of the GPUs of each node in the time shown, and its cost at the price above.",
            "kwatth",
            (
                Query(f"sum by (instance) ({_ENERGY}) / 3.6e6", "energy"),
                Query(
                    f"sum by (instance) ({_ENERGY}) / 3.6e6 * $price",
                    "cost",
                    "none",
                ),
                Query(
                    f"sum by (instance) ({_ENERGY}) / (sum by (instance)"
                    " (increase(amdgpu_gfx_active_seconds_total{NODE}[$__range])) > 0)",
                    "per active GPU-second",
                    "joule",
                ),
            ),
            "table",
            labels=("instance",),
            sort="energy",
            decimals=1,
            drill="amdgpu-node",
        ),
    ),
)

DASHBOARD = Dashboard(
    "capacity",
    "AMD GPU / Capacity",
    "What is allocated, what works, what is held but idle, what is left, and what the energy "
    "costs.",
    (_STATE, _ALLOCATION, _IDLE, _ROOM, _COST),
    price=True,
    span="now-7d",
)
