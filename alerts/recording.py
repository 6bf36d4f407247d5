"""Recording rules: verdicts that alerts hold on to, what dashboards share, and the long run.

The hourly rules are evaluated once an hour and fit to be kept for a year: read them with
`last_over_time(…[1h])` or a longer range, since a sample an hour old is stale to an instant query.
"""

from __future__ import annotations

from alerts.model import GPU, NODE, PARTITION, Recording, RecordingGroup, held

_BUSY = f"max by ({GPU}) (min_over_time(amdgpu_gfx_activity_ratio[@rate])) > @busy_ratio"
# xgmi_wafl is served as amdgpu_xgmi_errors_total too
_ECC = 'amdgpu_ecc_errors_total{block!="xgmi_wafl"}'
_LINK_SHARE = (
    f"(\n  max by ({GPU}) (amdgpu_pcie_link_width_lanes)\n"
    f"  * on ({GPU}) max by ({GPU}) (amdgpu_pcie_link_transfers_per_second)\n"
    f") / on ({GPU}) (\n  max by ({GPU}) (amdgpu_pcie_link_max_width_lanes)\n"
    f"  * on ({GPU}) max by ({GPU}) (amdgpu_pcie_link_max_transfers_per_second)\n)"
)

VERDICTS = RecordingGroup(
    "verdicts",
    "Verdicts, which alerts hold on to",
    (
        Recording(
            "instance:amdgpu_maintenance:active",
            f"max by ({NODE}) (last_over_time(amdgpu_exporter_maintenance[@maintenance])) == 1",
            "1 while the node's last word was that it is in maintenance; else absent.",
        ),
        Recording(
            "instance:amdgpu_poll_age:seconds",
            f"time() - max by ({NODE}) (amdgpu_exporter_last_poll_timestamp_seconds)",
            "Age of the picture that the exporter serves.",
        ),
        Recording(
            "gpu:amdgpu_telemetry:present",
            f"group by ({GPU}) (amdgpu_temperature_celsius)\n"
            f"or on ({GPU}) 0 * group by ({GPU}) (\n"
            f"  amdgpu_up == 1 unless on ({GPU}) amdgpu_suspended == 1\n)",
            "1 if a device tells its temperature, 0 if it answers and does not; absent while it "
            "is down or asleep.",
        ),
        Recording(
            "gpu:amdgpu_pcie_link:transfers_per_second",
            f"max by ({GPU}) (amdgpu_pcie_link_width_lanes)\n"
            f"* on ({GPU}) max by ({GPU}) (amdgpu_pcie_link_transfers_per_second)",
            "Transfers per second of all lanes, about the bits that the link can carry one way.",
        ),
        Recording(
            "gpu:amdgpu_pcie_link:ratio",
            f"{_LINK_SHARE} == 1\n"
            f"or on ({GPU}) (\n  {_LINK_SHARE}\n  and on ({GPU}) {_BUSY}\n)\n"
            # while the device answers and neither holds, the verdict before is handed on
            f"or on ({GPU}) (\n  {held('gpu:amdgpu_pcie_link:ratio')}\n"
            f"  and on ({GPU}) amdgpu_up == 1\n)",
            "The link's share of its highest width × speed, judged where it is 1 or the GPU has "
            "worked without a pause, since an idle one may lower its link; the last verdict.",
        ),
        Recording(
            "gpu:amdgpu_vram_used:ratio",
            f"max by ({PARTITION}) (amdgpu_vram_used_bytes)\n"
            f"/ on ({PARTITION}) max by ({PARTITION}) (amdgpu_vram_total_bytes)",
            "Share of the VRAM in use, of a device or partition.",
        ),
        Recording(
            "link:amdgpu_xgmi_transmit:ratio",
            f"max by ({GPU}, link, peer) (increase(amdgpu_xgmi_transmit_bytes_total[@rate]))\n"
            f"/ on ({GPU}, link, peer)\n"
            f"(@rate_seconds * max by ({GPU}, link, peer) (amdgpu_xgmi_link_max_bytes_per_second))",
            "Share of a link's rate that was sent over it.",
        ),
        Recording(
            "link:amdgpu_xgmi_link_max:ratio",
            f"max by ({GPU}, link, peer) (amdgpu_xgmi_link_max_bytes_per_second)\n"
            f"/ on ({NODE}) group_left ()\n"
            f"max by ({NODE}) (amdgpu_xgmi_link_max_bytes_per_second)",
            "The rate for which a link was trained, of the best of its node.",
        ),
    ),
)

TOTALS = RecordingGroup(
    "totals",
    "Totals of the fleet",
    (
        Recording("cluster:amdgpu_devices:count", "count by (cluster) (amdgpu_up)", "GPUs known."),
        Recording("cluster:amdgpu_up:sum", "sum by (cluster) (amdgpu_up)", "GPUs that answer."),
        Recording(
            "cluster:amdgpu_power_watts:sum", "sum by (cluster) (amdgpu_power_watts)", "Power."
        ),
        Recording(
            "cluster:amdgpu_vram_used_bytes:sum",
            "sum by (cluster) (amdgpu_vram_used_bytes)",
            "VRAM in use.",
        ),
        Recording(
            "cluster:amdgpu_vram_total_bytes:sum",
            "sum by (cluster) (amdgpu_vram_total_bytes)",
            "VRAM.",
        ),
        Recording(
            "cluster:amdgpu_gfx_activity:ratio",
            f"avg by (cluster) (\n  avg by ({GPU}) (\n"
            "    increase(amdgpu_gfx_active_seconds_total[@rate]) / @rate_seconds\n  )\n)",
            "Share of time that compute units work, partitions of a GPU averaged.",
        ),
    ),
)

HOURLY = RecordingGroup(
    "hourly",
    "The long run, once an hour",
    (
        Recording(
            "gpu:amdgpu_gfx_activity:ratio1h",
            f"avg by ({GPU}) (increase(amdgpu_gfx_active_seconds_total[@hour])) / @hour_seconds",
            "Share of the hour that compute units worked.",
        ),
        Recording(
            "gpu:amdgpu_energy_joules:increase1h",
            f"sum by ({GPU}) (increase(amdgpu_energy_joules_total[@hour]))",
            "Energy of the hour.",
        ),
        Recording(
            "gpu:amdgpu_power_watts:max1h",
            f"max by ({GPU}) (max_over_time(amdgpu_power_watts[@hour]))",
            "Highest power of the hour.",
        ),
        Recording(
            "gpu:amdgpu_hbm_temperature_celsius:max1h",
            f"max by ({GPU}) (max_over_time(amdgpu_hbm_temperature_celsius[@hour]))",
            "Highest HBM temperature of the hour.",
        ),
        Recording(
            "gpu:amdgpu_vram_used_bytes:max1h",
            f"sum by ({GPU}) (max_over_time(amdgpu_vram_used_bytes[@hour]))",
            "Highest VRAM use of the hour; of partitions, the sum of theirs.",
        ),
        Recording(
            "gpu:amdgpu_throttle_seconds:increase1h",
            f"sum by ({GPU}, reason) (increase(amdgpu_throttle_seconds_total[@hour]))",
            "Seconds throttled, by reason.",
        ),
        Recording(
            "gpu:amdgpu_ecc_errors:increase1h",
            f"sum by ({GPU}, severity) (increase({_ECC}[@hour]))",
            "ECC errors of all blocks but XGMI's, by severity.",
        ),
        Recording(
            "gpu:amdgpu_pcie_replays:increase1h",
            f"sum by ({GPU}) (increase(amdgpu_pcie_replays_total[@hour]))",
            "PCIe replays.",
        ),
        Recording(
            "gpu:amdgpu_xgmi_transmit_bytes:increase1h",
            f"sum by ({GPU}) (increase(amdgpu_xgmi_transmit_bytes_total[@hour]))",
            "Bytes sent over all XGMI links.",
        ),
        Recording(
            "gpu:amdgpu_up:avg1h",
            f"avg by ({GPU}) (avg_over_time(amdgpu_up[@hour]))",
            "Share of the hour for which the GPU answered.",
        ),
        Recording(
            "cluster:amdgpu_energy_joules:increase1h",
            "sum by (cluster) (increase(amdgpu_energy_joules_total[@hour]))",
            "Energy of the fleet in the hour.",
        ),
        Recording(
            "cluster:amdgpu_allocated:count",
            f"count by (cluster) (group by ({GPU}) (amdgpu_allocation_info))",
            "GPUs that a scheduler has given away.",
        ),
    ),
    interval="hour",
)

GROUPS = (VERDICTS, TOTALS, HOURLY)
