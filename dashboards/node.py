"""Node: all GPUs of one node beside each other, and the exporter that reads them."""

from __future__ import annotations

from dashboards.model import (
    NONE_IS_GOOD,
    ONE_IS_GOOD,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    Thresholds,
    above,
    stat,
)

_STATE = Row(
    "State",
    (
        stat(
            "GPUs",
            "GPUs seen in this boot of the node.",
            "count(amdgpu_up{NODE})",
        ),
        stat(
            "Not answering",
            "GPUs seen in this boot that did not answer the last poll.",
            "sum(1 - amdgpu_up{NODE})",
            thresholds=NONE_IS_GOOD,
        ),
        stat(
            "Asleep",
            "GPUs that sleep; they are not read, since reading would wake them.",
            "sum(amdgpu_suspended{NODE})",
        ),
        stat(
            "Power of all GPUs",
            "Their energy counters over time.",
            "sum(rate(amdgpu_energy_joules_total{NODE}[$__rate_interval]))",
            unit="watt",
        ),
        stat(
            "VRAM used",
            "Share of the memory of all GPUs.",
            "sum(amdgpu_vram_used_bytes{NODE}) / sum(amdgpu_vram_total_bytes{NODE})",
            unit="percentunit",
            thresholds=above(0.9, 0.97),
        ),
        stat(
            "Processes",
            "Processes that hold VRAM, counted once per GPU.",
            "sum(amdgpu_processes{NODE})",
        ),
    ),
)

_WHO = Row(
    "Devices",
    (
        Panel(
            "Devices of the node",
            "Number, PCI address and identity of each GPU; a label that no source reports is "
            "empty. On a partitioned device, the partitions are further lines.",
            "none",
            (
                Query(
                    "max by (instance, gpu, partition, pci_address, name, serial, vbios_version, "
                    "partition_mode, memory_partition, numa_node) (amdgpu_info{NODE})"
                    " * on (instance, gpu) group_left ()"
                    " sum by (instance, gpu) (amdgpu_vram_total_bytes{NODE})",
                    "VRAM",
                    "bytes",
                ),
            ),
            "table",
            labels=(
                "instance",
                "gpu",
                "partition",
                "pci_address",
                "name",
                "serial",
                "vbios_version",
                "partition_mode",
                "memory_partition",
                "numa_node",
            ),
            width=24,
            drill="amdgpu-gpu",
        ),
        Panel(
            "GPUs that answer",
            "Whether each GPU seen in this boot answered. The series of a lost GPU stop; this one "
            "stays.",
            "none",
            (Query("max by (<gpu>) (amdgpu_up{NODE})"),),
            "statetimeline",
            ONE_IS_GOOD,
            width=16,
            names={0: ("lost", "red"), 1: ("answers", "green")},
            drill="amdgpu-gpu",
            see=Link("amdgpu-reliability", "GPUs answering"),
        ),
        Panel(
            "GPUs by view",
            "How many GPUs each view of the node counts. On a partitioned device, libraries count "
            "partitions; pci and drm should agree with expected.",
            "none",
            (Query("max by (<node>, view) (amdgpu_devices{NODE})", "{{view}}"),),
            "bargauge",
            width=8,
            low=0,
        ),
    ),
)

_HEAT = Row(
    "Heat and power",
    (
        Panel(
            "Junction temperature",
            "The hottest point of each GPU. Limits differ by model: they are on the GPU dashboard.",
            "celsius",
            (Query('amdgpu_temperature_celsius{NODE, sensor="junction"}'),),
            drill="amdgpu-gpu",
            see=Link("amdgpu-gpu", "Temperatures and limits"),
        ),
        Panel(
            "HBM temperature",
            "The hottest HBM of each GPU.",
            "celsius",
            (Query("amdgpu_hbm_temperature_celsius{NODE}"),),
            drill="amdgpu-gpu",
        ),
        Panel(
            "Power of each GPU",
            "From the energy counters.",
            "watt",
            (Query("rate(amdgpu_energy_joules_total{NODE}[$__rate_interval])"),),
            low=0,
            drill="amdgpu-gpu",
            see=Link("amdgpu-gpu", "Power and limit"),
        ),
        Panel(
            "Throttling by reason",
            "Share of time that each reason held back the most affected GPU of the node.",
            "percentunit",
            (
                Query(
                    "max by (<node>, reason)"
                    " (rate(amdgpu_throttle_seconds_total{NODE}[$__rate_interval]))",
                    "{{instance}} {{reason}}",
                ),
            ),
            low=0,
            see=Link("amdgpu-gpu", "Throttling"),
        ),
    ),
)

_WORK = Row(
    "Work",
    (
        Panel(
            "Compute activity",
            "Share of time that the compute engines of each GPU worked. In step with its peers is "
            "what training looks like; one that stays behind holds up the others.",
            "percentunit",
            (
                Query(
                    "avg by (<gpu>)"
                    " (rate(amdgpu_gfx_active_seconds_total{NODE}[$__rate_interval]))",
                ),
            ),
            width=8,
            low=0,
            high=1,
            drill="amdgpu-gpu",
        ),
        Panel(
            "VRAM used by GPU",
            "Share of each GPU's memory, all its partitions together.",
            "percentunit",
            (
                Query(
                    "sum by (<gpu>) (amdgpu_vram_used_bytes{NODE})"
                    " / sum by (<gpu>) (amdgpu_vram_total_bytes{NODE})",
                ),
            ),
            thresholds=Thresholds("green", ((0.97, "red"),)),
            width=8,
            low=0,
            high=1,
            drill="amdgpu-memory",
        ),
        Panel(
            "XGMI sent",
            "Bytes per second that each GPU sends to all its peers.",
            "Bps",
            (
                Query(
                    "sum by (<gpu>)"
                    " (rate(amdgpu_xgmi_transmit_bytes_total{NODE}[$__rate_interval]))",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-interconnect",
        ),
    ),
)

_EXPORTER = Row(
    "Exporter",
    (
        Panel(
            "Time of the collectors",
            "How long each collector's readers took in the last poll, all devices together.",
            "s",
            (
                Query(
                    "amdgpu_exporter_collector_duration_seconds{NODE}",
                    "{{instance}} {{collector}}",
                ),
            ),
            width=8,
            stacked=True,
            low=0,
        ),
        Panel(
            "CPU of the workers",
            "CPU time that reading costs, by source; 1 is a whole core.",
            "percentunit",
            (
                Query(
                    "rate(amdgpu_exporter_worker_cpu_seconds_total{NODE}[$__rate_interval])",
                    "{{instance}} {{source}}",
                ),
            ),
            width=8,
            low=0,
        ),
        Panel(
            "Memory of the workers",
            "Resident memory of the process that reads each source.",
            "bytes",
            (
                Query(
                    "amdgpu_exporter_worker_resident_bytes{NODE}",
                    "{{instance}} {{source}}",
                ),
            ),
            width=8,
            low=0,
        ),
    ),
)

DASHBOARD = Dashboard(
    "node",
    "AMD GPU / Node",
    "The GPUs of one node beside each other, and what reading them costs.",
    (_STATE, _WHO, _HEAT, _WORK, _EXPORTER),
    instances="one",
)
