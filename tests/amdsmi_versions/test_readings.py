"""What the collectors make of each release's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.values import from_wire
from tests.amdsmi_versions.conftest import Run
from tests.amdsmi_versions.standin import NUMBERS

TELLING, SILENT = "0000:c1:00.0", "0000:c2:00.0"
ALL_ONES = {"*": 0xFF}
"""Every byte of a structure: how the library marks what it doesn't know."""

METRICS = {
    **ALL_ONES,
    "temperature_hotspot": 45,
    "temperature_mem": 41,
    "temperature_hbm": [40, 42],
    "average_gfx_activity": 50,
    "average_umc_activity": 25,
    "vcn_activity": [10, 15],
    "average_socket_power": 138,
    "current_socket_power": 140,
    "energy_accumulator": 15 << 16,
    "system_clock_counter": 12_000_000_000,
    "current_gfxclk": 1900,
    "current_gfxclks": [2100, 2000],
    "current_uclk": 1300,
    "pcie_link_width": 16,
    "pcie_link_speed": 320,
    "pcie_replay_count_acc": 65535,
    "pcie_replay_rover_count_acc": 1,
    "pcie_l0_to_recov_count_acc": 3,
    "pcie_nak_sent_count_acc": 4,
    "pcie_nak_rcvd_count_acc": 5,
    "pcie_bandwidth_acc": 777,
    "xgmi_link_width": 16,
    "xgmi_link_speed": 32,
    "xgmi_read_data_acc": [1000, 0],
    "xgmi_write_data_acc": [2000, 0],
    "xgmi_link_status": [1, 0],
    "accumulation_counter": 5000,
    "ppt_residency_acc": 100,
    "socket_thm_residency_acc": 0,
    "xcp_stats": [
        {
            "gfx_busy_inst": [50, 75],
            "gfx_below_host_limit_acc": [11],
            "gfx_below_host_limit_total_acc": [11],
        }
    ],
    "vram_max_bandwidth": 5300,
}
# amdsmi_clk_type_t: graphics 0, SoC 3, memory 4, VCLK0 6, DCLK0 8
CLOCKS = {0: 2100, 3: 1200, 4: 1300, 6: 1700, 8: 1400}
ASIC = {"market_name": "AMD Instinct MI300X", "asic_serial": "0xabc", "oam_id": 3}
ANSWERS = [
    ("amdsmi_get_gpu_metrics_info", -1, METRICS),
    *(("amdsmi_get_clock_info", kind, {"max_clk": most}) for kind, most in CLOCKS.items()),
    ("amdsmi_get_power_cap_info", -1, {"power_cap": 750_000_000}),
    ("amdsmi_get_gpu_fan_speed", -1, 51),
    ("amdsmi_get_gpu_fan_speed_max", -1, 255),
    (
        "amdsmi_get_fw_info",
        -1,
        {
            "num_fw_info": 2,
            "fw_info_list": [{"fw_id": 1, "fw_version": 5596928}, {"fw_id": 2, "fw_version": 0}],
        },
    ),
    ("amdsmi_get_gpu_board_info", -1, {"product_serial": "692351000123"}),
    ("amdsmi_get_gpu_vbios_info", -1, {"part_number": "113-M3000100-102"}),
    ("amdsmi_get_gpu_enumeration_info", -1, {"drm_render": 128, "hip_id": 2}),
    ("amdsmi_get_gpu_device_uuid", -1, "a1ff74a1-0000-1000-80ab-000000000001"),
    ("amdsmi_get_gpu_compute_partition", -1, "SPX"),
    ("amdsmi_get_gpu_memory_partition", -1, "NPS1"),
    ("amdsmi_get_gpu_vram_usage", -1, {"vram_total": 196592, "vram_used": 300}),
    ("amdsmi_get_gpu_vram_info", -1, {"vram_size": 196592, "vram_size_mb": 196592}),
    ("amdsmi_get_gpu_bad_page_threshold", -1, 256),
]

EXPECTED: dict[str, dict[str, Any]] = {
    "5.7.0": {
        "identity.uuid": "a1ff74a1-0000-1000-80ab-000000000001",
        "identity.name": "AMD Instinct MI300X",
        "identity.serial": "692351000123",
        "identity.vbios_version": "113-M3000100-102",
        "identity.vendor_index": "0",
        "temperature.sensors.junction": 45,
        "temperature.sensors.hbm": 41,
        "temperature.hbm_stacks.0": 40,
        "temperature.hbm_stacks.1": 42,
        "power.watts": 138,
        "power.limit_watts": 750,
        "power.joules": 15,
        "clocks.current.gfx": 1.9e9,
        "clocks.current.memory": 1.3e9,
        "clocks.highest.gfx": 2.1e9,
        "clocks.highest.soc": 1.2e9,
        "clocks.highest.memory": 1.3e9,
        "clocks.highest.video": 1.7e9,
        "clocks.highest.decode": 1.4e9,
        "activity.gfx": 0.5,
        "activity.memory": 0.25,
        "memory.total": 196592 << 20,
        "memory.used": 300 << 20,
        "xgmi.clock": 12,
        "pcie.transfers": 32e9,
        "pcie.width": 16,
        "fan.speed": 0.2,
    },
    "6.0.2": {
        "identity.partition_mode": "SPX",
        "identity.memory_partition": "NPS1",
        "identity.oam_id": "3",
        "power.watts": 140,
        "clocks.current.gfx": 2.05e9,
        "activity.media": 0.125,
        "pcie.replays": 65535,
        "pcie.rollovers": 1,
        "pcie.recoveries": 3,
        "pcie_traffic.accumulated": 777,
        "xgmi.received.0": 1_024_000,
        "xgmi.transmitted.0": 2_048_000,
        "xgmi.max_rate.0": 64e9,
    },
    "6.1.2": {"pcie.naks.sent": 4, "pcie.naks.received": 5},
    "6.2.4": {},
    "6.3.3": {
        "throttle.residency.power": 100,
        "throttle.residency.junction_thermal": 0,
        "throttle.ticks": 5000,
        "host_limit.ticks": 5000,
        "xcc.activity.0": 0.5,
        "xcc.activity.1": 0.75,
    },
    "6.4.3": {
        "identity.hip_index": "2",
        "identity.render_node": "renderD128",
        "memory.max_bandwidth": 5.3e12,
        "xgmi.up.0": 1,
        "xgmi.up.1": 0,
        "xgmi.received.1": 0,
        "xgmi.transmitted.1": 0,
        "xgmi.max_rate.1": 64e9,
        "host_limit.residency.0": 11,
    },
    "7.0.2": {"ras.bad_page_threshold": 256},
}
"""What each release is the first to tell, or to tell better; it tells all before it, too."""


def answers(version: str) -> list[Any]:
    """Give what the release's library answers: 6.3's wrapper takes gfx942 for decimal."""
    target = 942 if version == "6.3.3" else 0x942
    return [*ANSWERS, ("amdsmi_get_gpu_asic_info", -1, {**ASIC, "target_graphics_version": target})]


def flat(read: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Give every value with its collector, field and key; absences are left out."""
    for collector, fields in read.items():
        for name, wire in fields.items():
            value = from_wire(wire)
            entries = value.items() if isinstance(value, dict) else [(None, value)]
            for key, entry in entries:
                if isinstance(entry, (int, float, str)):
                    yield f"{collector}.{name}" + (f".{key}" if key is not None else ""), entry


def expected(version: str) -> dict[str, Any]:
    """Add up what the releases up to `version` tell."""
    told: dict[str, Any] = {}
    for release, values in EXPECTED.items():
        told.update(values)
        if release == version:
            break
    return told


@pytest.mark.parametrize("version", NUMBERS)
class TestReadings:
    """Two devices over the wrapper of each release: one that tells much, one that tells nothing."""

    def test_tell_everything_that_the_release_knows(
        self, version: str, home: Callable[[str], Path], run: Run
    ) -> None:
        """Renamed keys and changed shapes lead to the same fields, units and numbers.

        65535 replays are a count, although that is elsewhere the mark of a missing value.
        """
        answer = run(ROCM_PATH=str(home(version)), devices={TELLING: answers(version), SILENT: []})

        read = dict(flat(answer["read"][TELLING]))
        assert pytest.approx(expected(version)) == read

    def test_hold_no_number_that_marks_a_missing_one(
        self, version: str, home: Callable[[str], Path], run: Run
    ) -> None:
        """All ones, raw in 5.7 and 6.0 and 'N/A' since, in lists too, become absences.

        What remains is the device's place in the list, and the clock that shows it to be alive.
        """
        metrics = {**ALL_ONES, "system_clock_counter": 3_000_000_000}
        silent = [
            ("amdsmi_get_gpu_metrics_info", -1, metrics),
            ("amdsmi_get_power_cap_info", -1, ALL_ONES),
            ("amdsmi_get_gpu_vram_usage", -1, ALL_ONES),
            ("amdsmi_get_gpu_vram_info", -1, ALL_ONES),
            ("amdsmi_get_gpu_bad_page_threshold", -1, 0xFFFFFFFF),
            *(("amdsmi_get_clock_info", kind, ALL_ONES) for kind in CLOCKS),
        ]
        answer = run(
            ROCM_PATH=str(home(version)), devices={TELLING: answers(version), SILENT: silent}
        )

        left = {"identity.vendor_index": "1", "xgmi.clock": 3}
        assert left == dict(flat(answer["read"][SILENT]))
