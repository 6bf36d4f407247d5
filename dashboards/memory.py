"""Memory and leaks: who holds VRAM, and what nobody owns."""

from __future__ import annotations

from dashboards.model import (
    NONE_IS_GOOD,
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

_STATE = Row(
    "State",
    (
        stat(
            "Leaks suspected",
            "GPUs that the leak detection suspects, by growth of a process or by residue.",
            "sum(max by (<gpu>) (amdgpu_vram_leak_suspected{GPU}))",
            thresholds=NONE_IS_GOOD,
            width=5,
            see=Link("amdgpu-memory", "Verdicts of the leak detection"),
        ),
        stat(
            "Least VRAM free",
            "Of the selected GPUs, the one with the least memory left.",
            "min(1 - sum by (<gpu>) (amdgpu_vram_used_bytes{GPU})"
            " / sum by (<gpu>) (amdgpu_vram_total_bytes{GPU}))",
            unit="percentunit",
            thresholds=below(0.1, 0.03),
            width=5,
        ),
        stat(
            "Held by the dead",
            "VRAM of processes that have ended, which only a restart of the driver gives back.",
            "sum(amdgpu_vram_zombie_bytes{GPU})",
            unit="bytes",
            thresholds=Thresholds("green", ((1, "orange"),)),
            width=5,
        ),
        stat(
            "Soonest exhaustion",
            "At today's growth; empty when nothing grows.",
            "min(amdgpu_vram_exhaustion_seconds{GPU})",
            unit="s",
            thresholds=below(86_400, 7_200),
            width=5,
        ),
        stat(
            "Processes with VRAM",
            "Counted once per GPU or partition.",
            "sum(amdgpu_processes{GPU})",
            width=4,
        ),
    ),
)

_USE = Row(
    "Use",
    (
        Panel(
            "VRAM used",
            "The 20 fullest GPUs: share of each GPU's memory in use, all its partitions together.",
            "percentunit",
            (
                Query(
                    "topk(20, sum by (<gpu>) (amdgpu_vram_used_bytes{GPU})"
                    " / sum by (<gpu>) (amdgpu_vram_total_bytes{GPU}))",
                ),
            ),
            thresholds=above(0.9, 0.97),
            low=0,
            high=1,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Floor of use",
            "The least memory in use over the last hour, of the 20 GPUs with the most: what work "
            "comes back to. A floor that climbs for hours is a leak; a jump is another job.",
            "bytes",
            (Query("topk(20, sum by (<gpu>) (min_over_time(amdgpu_vram_used_bytes{GPU}[1h])))"),),
            low=0,
            drill="amdgpu-gpu",
            see=Link("amdgpu-gpu", "VRAM, its floor and its owners"),
        ),
    ),
)

_OWNERS = Row(
    "Owners",
    (
        Panel(
            "Largest 20 processes",
            "Who holds the most, with pod or job where the node knows it.",
            "bytes",
            (
                Query(
                    """topk(20,
                      max by (<gpu>, partition, pid) (amdgpu_process_vram_bytes{GPU})
                      * on (<node>, pid) group_left (command, user, namespace, pod, job_id)
                      max by (<node>, pid, command, user, namespace, pod, job_id)
                        (amdgpu_process_info{NODE})
                    )""",
                    "VRAM",
                ),
            ),
            "table",
            labels=("instance", "gpu", "pid", "command", "user", "namespace", "pod", "job_id"),
            sort="VRAM",
            width=16,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Processes that have ended",
            "VRAM that zombies, and processes that only KFD still knows, hold: the 20 GPUs with "
            "the most.",
            "bytes",
            (Query("topk(20, sum by (<gpu>) (amdgpu_vram_zombie_bytes{GPU}))"),),
            width=8,
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "States of the processes",
            "Processes that hold VRAM, by state. Gone: ended, and KFD keeps the memory.",
            "none",
            (
                Query(
                    "count by (<node>, state) (amdgpu_process_state{NODE})",
                    "{{instance}} {{state}}",
                ),
            ),
            low=0,
            stacked=True,
            drill="amdgpu-node",
        ),
        Panel(
            "Processes per GPU",
            "Processes that hold memory of each GPU, of the 20 with the most. They add up while "
            "programs that were thought dead go on.",
            "none",
            (Query("topk(20, sum by (<gpu>) (amdgpu_processes{GPU}))"),),
            low=0,
            drill="amdgpu-gpu",
        ),
    ),
)

_LEAKS = Row(
    "Growth and leaks",
    (
        Panel(
            "Verdicts of the leak detection",
            "1 suspected, 0 judged clean; a GPU that was not judged yet is absent.",
            "none",
            (
                Query(
                    "max by (instance, gpu, kind) (amdgpu_vram_leak_suspected{GPU})",
                    "verdict",
                ),
            ),
            "table",
            NONE_IS_GOOD,
            labels=("instance", "gpu", "kind"),
            sort="verdict",
            width=8,
            names={0: ("clean", "green"), 1: ("suspected", "red")},
            drill="amdgpu-gpu",
        ),
        Panel(
            "Growth of the floor",
            "Slope of the floor of use, as judged: the 20 GPUs that grow fastest.",
            "Bps",
            (Query("topk(20, sum by (<gpu>) (amdgpu_vram_growth_bytes_per_second{GPU}))"),),
            width=8,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Without an owner",
            "Used, less all that its owners and the idle baseline account for: the 20 GPUs with "
            "the most.",
            "bytes",
            (Query("topk(20, sum by (<gpu>) (amdgpu_vram_unattributed_bytes{GPU}))"),),
            width=8,
            drill="amdgpu-gpu",
        ),
    ),
)

_HOST = Row(
    "Memory shared with the host",
    (
        Panel(
            "GTT used",
            "Host memory that each device has mapped: the 20 with the most.",
            "bytes",
            (
                Query("topk(20, sum by (<gpu>) (amdgpu_gtt_used_bytes{GPU}))"),
                Query(
                    "max(amdgpu_gtt_total_bytes{GPU})", "largest GTT of a selected GPU", dashed=True
                ),
            ),
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Host-visible VRAM used",
            "Share of the VRAM that the host can map, of the 20 fullest GPUs. Without a large BAR "
            "it is small, and runs out first.",
            "percentunit",
            (
                Query(
                    "topk(20, sum by (<gpu>) (amdgpu_vram_visible_used_bytes{GPU})"
                    " / sum by (<gpu>) (amdgpu_vram_visible_total_bytes{GPU}))",
                ),
            ),
            low=0,
            high=1,
            drill="amdgpu-gpu",
        ),
    ),
)

DASHBOARD = Dashboard(
    "memory",
    "AMD GPU / Memory and leaks",
    "Who holds VRAM, how its floor moves, and what nobody owns.",
    (_STATE, _USE, _OWNERS, _LEAKS, _HOST),
    gpus="many",
    span="now-12h",
)
