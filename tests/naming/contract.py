"""The metric contract, as far as it covers hardware telemetry and the exporter itself.

A name listed here keeps its name, type, unit and labels; the table was copied from the contract
and changes only together with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DEVICE = ("gpu", "pci_address")


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of the contract.

    Attributes:
        labels: all of them, those of a device included.
        values: the values that the contract lists for a label, where it lists them all.
    """

    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    values: Mapping[str, frozenset[str]]


def _entries(table: str) -> dict[str, Entry]:
    """Lines of: names | kind | further labels, with `=` and `/` for values | `node` or nothing."""
    found: dict[str, Entry] = {}
    for line in table.strip().splitlines():
        names, kind, further, where = (part.strip() for part in line.split("|"))
        labels: list[str] = [] if where == "node" else [*DEVICE]
        values: dict[str, frozenset[str]] = {}
        for label in further.split():
            name, _, listed = label.partition("=")
            labels.append(name)
            if listed:
                values[name] = frozenset(listed.split("/"))
        for name in names.split():
            assert kind in ("gauge", "counter")
            found[name] = Entry("gauge" if kind == "gauge" else "counter", tuple(labels), values)
    return found


CONTRACT = _entries(
    """
amdgpu_info | gauge | uuid name gfx_target serial vbios_version partition_mode memory_partition vendor_index hip_index oam_id render_node numa_node |
amdgpu_node_info | gauge | driver_version rocm_version kernel_version amdsmi_version rocm_smi_version boot_id | node
amdgpu_firmware_devices | gauge | block version | node
amdgpu_up | gauge | |
amdgpu_devices | gauge | view=pci/drm/kfd/amdsmi/rocm_smi/expected | node
amdgpu_temperature_celsius | gauge | sensor |
amdgpu_hbm_temperature_celsius | gauge | |
amdgpu_hbm_stack_temperature_celsius | gauge | stack |
amdgpu_temperature_limit_celsius | gauge | sensor limit=critical/emergency/configured_warning/configured_critical |
amdgpu_power_watts amdgpu_power_limit_watts | gauge | |
amdgpu_energy_joules_total | counter | |
amdgpu_fan_speed_ratio | gauge | |
amdgpu_clock_hertz amdgpu_clock_max_hertz | gauge | clock |
amdgpu_gfx_activity_ratio amdgpu_memory_activity_ratio amdgpu_media_activity_ratio | gauge | |
amdgpu_gfx_active_seconds_total amdgpu_memory_active_seconds_total | counter | |
amdgpu_vram_total_bytes amdgpu_vram_used_bytes | gauge | |
amdgpu_vram_visible_total_bytes amdgpu_vram_visible_used_bytes | gauge | |
amdgpu_gtt_total_bytes amdgpu_gtt_used_bytes | gauge | |
amdgpu_vram_max_bandwidth_bytes_per_second | gauge | |
amdgpu_processes | gauge | |
amdgpu_process_vram_bytes | gauge | pid |
amdgpu_process_info | gauge | pid command user container_id pod namespace container job_id | node
amdgpu_allocation_info amdgpu_allocation_vram_bytes | gauge | namespace pod container job_id user |
amdgpu_xgmi_receive_bytes_total amdgpu_xgmi_transmit_bytes_total | counter | link peer |
amdgpu_xgmi_receive_bytes_per_second amdgpu_xgmi_transmit_bytes_per_second | gauge | link peer |
amdgpu_xgmi_link_up amdgpu_xgmi_link_max_bytes_per_second | gauge | link peer |
amdgpu_xgmi_errors_total | counter | severity |
amdgpu_pcie_replays_total | counter | |
amdgpu_pcie_replays_per_second | gauge | |
amdgpu_pcie_replay_rollovers_total amdgpu_pcie_l0_recoveries_total | counter | |
amdgpu_pcie_naks_total | counter | direction=sent/received |
amdgpu_pcie_link_transfers_per_second amdgpu_pcie_link_max_transfers_per_second | gauge | |
amdgpu_pcie_link_width_lanes amdgpu_pcie_link_max_width_lanes | gauge | |
amdgpu_pcie_aer_errors_total | counter | severity=correctable/nonfatal/fatal |
amdgpu_ecc_errors_total | counter | block severity=correctable/uncorrectable/deferred |
amdgpu_bad_pages | gauge | state=retired/pending/unreservable |
amdgpu_bad_page_threshold | gauge | |
amdgpu_throttle_ratio | gauge | reason=power/junction_thermal/hbm_thermal/vr_thermal/prochot |
amdgpu_throttle_seconds_total | counter | reason=power/junction_thermal/hbm_thermal/vr_thermal/prochot |
amdgpu_exporter_build_info | gauge | version python_version | node
amdgpu_exporter_collector_success amdgpu_exporter_collector_duration_seconds | gauge | collector | node
amdgpu_exporter_source_up | gauge | source | node
amdgpu_exporter_source_restarts_total | counter | source reason | node
amdgpu_exporter_worker_cpu_seconds_total | counter | source | node
amdgpu_exporter_worker_resident_bytes amdgpu_exporter_worker_open_fds | gauge | source | node
amdgpu_exporter_last_poll_timestamp_seconds amdgpu_exporter_poll_interval_seconds | gauge | | node
amdgpu_exporter_rejected_values_total | counter | collector reason | node
amdgpu_exporter_simulated | gauge | | node
amdgpu_exporter_config_last_reload_successful | gauge | | node
amdgpu_exporter_config_last_reload_success_timestamp_seconds | gauge | | node
"""  # noqa: E501  # a table
)

MAX_PER_SOCKET = 250
MAX_PER_PARTITION = 40
MAX_LABEL_VALUE = 128
