"""gpu_metrics as the package `amdsmi` of ROCm 10.1 shows it: all keys, whatever the revision.

What a revision lacks is 'N/A', in the place and shape that the wrapper gives it (found by running
AMD's library over tables of revisions 1.3, 1.7 and 1.8). From 1.9, whose fields carry their own
description, that library has names for more temperatures; num_partition is missing there.
"""

from __future__ import annotations

from exporter.simulation.models import Model
from exporter.simulation.node import TICKS_PER_SECOND, UPTIME, Device, State

NA = "N/A"
ENERGY_UNIT = 2.0**-16
"""Joules per count of the energy accumulator."""
_U32 = 0xFFFFFFFF
_KILOBYTE = 1024
_PARTITIONS = 8
_STACK_SPREAD = (0, -1, -3, -2, -4, -2, -1, -3, -2, -4, -3, -1)
"""Degrees below the hottest stack (assumption)."""

_SCALARS = """
common_header.structure_size common_header.format_revision common_header.content_revision
temperature_edge temperature_hotspot temperature_mem temperature_vrgfx temperature_vrsoc
temperature_vrmem average_gfx_activity average_umc_activity average_mm_activity
average_socket_power energy_accumulator system_clock_counter average_gfxclk_frequency
average_socclk_frequency average_uclk_frequency average_vclk0_frequency average_dclk0_frequency
average_vclk1_frequency average_dclk1_frequency current_gfxclk current_socclk current_uclk
current_vclk0 current_dclk0 current_vclk1 current_dclk1 throttle_status current_fan_speed
pcie_link_width pcie_link_speed gfx_activity_acc mem_activity_acc firmware_timestamp voltage_soc
voltage_gfx voltage_mem indep_throttle_status current_socket_power gfxclk_lock_status
xgmi_link_width xgmi_link_speed pcie_bandwidth_acc pcie_bandwidth_inst pcie_l0_to_recov_count_acc
pcie_replay_count_acc pcie_replay_rover_count_acc pcie_nak_sent_count_acc pcie_nak_rcvd_count_acc
accumulation_counter prochot_residency_acc ppt_residency_acc socket_thm_residency_acc
vr_thm_residency_acc hbm_thm_residency_acc num_partition pcie_lc_perf_other_end_recovery
vram_max_bandwidth
"""
_LISTS = {
    "temperature_hbm": 4,
    "vcn_activity": 4,
    "xgmi_read_data_acc": 8,
    "xgmi_write_data_acc": 8,
    "current_gfxclks": 8,
    "current_socclks": 4,
    "current_vclk0s": 4,
    "current_dclk0s": 4,
    "jpeg_activity": 32,
    "xgmi_link_status": 8,
    "temperature_hbm_stacks": 12,
    "temperature_mid": 2,
    "temperature_aid": 2,
    "current_uclk_aid": 2,
    "current_socclks_mid": 2,
}
_PER_PARTITION = {
    "gfx_busy_inst": 8,
    "jpeg_busy": 40,
    "vcn_busy": 4,
    "gfx_busy_acc": 8,
    "gfx_below_host_limit_acc": 8,
    "gfx_below_host_limit_ppt_acc": 8,
    "gfx_below_host_limit_thm_acc": 8,
    "gfx_low_utilization_acc": 8,
    "gfx_below_host_limit_total_acc": 8,
    "temperature_xcd": 8,
}
_APU = """
temperature_gfx temperature_soc temperature_core temperature_l3 temperature_skin
average_gfx_activity average_mm_activity average_vcn_activity average_ipu_activity
average_core_c0_activity average_dram_reads average_dram_writes average_ipu_reads
average_ipu_writes average_socket_power average_cpu_power average_soc_power average_gfx_power
average_core_power average_ipu_power average_apu_power average_dgpu_power average_all_core_power
average_sys_power stapm_power_limit current_stapm_power_limit average_gfxclk_frequency
average_socclk_frequency average_uclk_frequency average_fclk_frequency average_vclk_frequency
average_dclk_frequency average_vpeclk_frequency average_ipuclk_frequency average_mpipu_frequency
current_gfxclk current_socclk current_uclk current_fclk current_vclk current_dclk current_coreclk
current_l3clk current_core_maxfreq current_gfx_maxfreq throttle_status indep_throttle_status
throttle_residency_prochot throttle_residency_spl throttle_residency_fppt throttle_residency_sppt
throttle_residency_thm_core throttle_residency_thm_gfx throttle_residency_thm_soc fan_pwm
average_temperature_gfx average_temperature_soc average_temperature_core average_temperature_l3
average_cpu_voltage average_soc_voltage average_gfx_voltage average_cpu_current
average_soc_current average_gfx_current time_filter_alphavalue
"""

_EMPTY: dict[str, object] = {
    **dict.fromkeys(_SCALARS.split(), NA),
    **{key: [NA] * length for key, length in _LISTS.items()},
    **{f"xcp_stats.{key}": [[NA] * length] * _PARTITIONS for key, length in _PER_PARTITION.items()},
    "is_apu": False,
    **{f"apu_metrics.{key}": NA for key in _APU.split()},
}
_SIZES = {(1, 3): 120, (1, 7): 2208, (1, 9): 4096}  # 1.9 varies; its size is an assumption


def _filled(values: list[int], length: int) -> list[object]:
    return [*values, *([NA] * (length - len(values)))]


def percent(share: float) -> int:
    """A share as the firmware rounds it."""
    return round(100 * share)


def ticks(seconds: float) -> int:
    """Seconds as the firmware counts them, in 32 bits."""
    return int(seconds * TICKS_PER_SECOND) & _U32


def energy_count(state: State) -> int:
    """The energy accumulator."""
    return int(state.energy / ENERGY_UNIT)


def hbm_celsius(model: Model, state: State) -> list[int]:
    """Degrees of every HBM stack."""
    hottest = int(state.celsius["mem"])
    return [hottest + below for below in _STACK_SPREAD[: model.stacks]]


def pcie_link(model: Model, state: State) -> tuple[int, int]:
    """Generation and lanes that the slot trained."""
    if state.condition.degraded:
        return model.pcie_gen - 1, model.pcie_width // 2
    return model.pcie_gen, model.pcie_width


def megatransfers(generation: int) -> int:
    """MT/s of a PCIe generation, 3 to 5."""
    return 1000 << generation


_APART = 40_000
"""Nanoseconds between the samples of two devices."""


def gpu_metrics(device: Device, state: State) -> dict[str, object]:
    """The table of a device with revision 1.3, 1.7 or 1.9."""
    model = device.model
    assert model.metrics is not None  # noqa: S101  # the caller asks only where there is one
    generation, lanes = pcie_link(model, state)
    # A driver samples one device after the other, so no two tables are of the same moment.
    clock = int((UPTIME + state.time) * 1e9) + device.number * _APART
    table = {
        **_EMPTY,
        "common_header.structure_size": _SIZES[model.metrics],
        "common_header.format_revision": model.metrics[0],
        "common_header.content_revision": model.metrics[1],
        "temperature_hotspot": int(state.celsius["junction"]),
        "temperature_mem": int(state.celsius["mem"]),
        "temperature_vrsoc": int(state.celsius["vr"]),
        "average_gfx_activity": percent(state.gfx),
        "average_umc_activity": percent(state.memory),
        "energy_accumulator": energy_count(state),
        "system_clock_counter": clock,
        "firmware_timestamp": clock // 10,
        "current_gfxclk": state.gfx_clock,
        "current_socclk": model.soc_clock.high,
        "current_uclk": state.memory_clock,
        "pcie_link_width": lanes,
        "pcie_link_speed": megatransfers(generation) // 100,
        "gfx_activity_acc": ticks(100 * state.gfx_seconds),
        "mem_activity_acc": ticks(100 * state.memory_seconds),
    }
    table.update(_mi300(device, state) if model.current_power else _mi200(device, state))
    return table


def _mi200(device: Device, state: State) -> dict[str, object]:
    """What only revision 1.3 has."""
    model = device.model
    throttled = bool(state.condition.residencies)
    return {
        "temperature_edge": int(state.celsius["edge"]),
        "temperature_vrgfx": int(state.celsius["vr"]) + 2,
        "temperature_vrmem": int(state.celsius["vr"]) - 1,
        "average_mm_activity": 0,
        "average_socket_power": int(state.power),
        "average_gfxclk_frequency": state.gfx_clock,
        "average_socclk_frequency": model.soc_clock.high,
        "average_uclk_frequency": state.memory_clock,
        "current_vclk0": 0,
        "current_dclk0": 0,
        "throttle_status": throttled,
        "indep_throttle_status": throttled,
        "current_fan_speed": 0,
        "temperature_hbm": hbm_celsius(model, state),
        "vcn_activity": _filled([0], 4),
        "current_gfxclks": _filled([state.gfx_clock], 8),
        "current_socclks": _filled([model.soc_clock.high], 4),
        "current_vclk0s": _filled([0], 4),
        "current_dclk0s": _filled([0], 4),
    }


def _mi300(device: Device, state: State) -> dict[str, object]:
    """What only revisions 1.7 and 1.9 have."""
    model = device.model
    assert model.metrics is not None and model.xgmi is not None  # noqa: S101, PT018  # links have both
    dies = model.dies_of_compute // model.partitions
    busy = percent(state.gfx)
    below = {name: [ticks(state.residencies[name])] * dies for name in ("ppt", "socket_thm")}
    total = [ppt + thermal & _U32 for ppt, thermal in zip(*below.values(), strict=True)]
    table: dict[str, object] = {
        "current_vclk0": 29,
        "current_dclk0": 22,
        "current_vclk1": 29,
        "current_dclk1": 22,
        "current_socket_power": int(state.power),
        "gfxclk_lock_status": 0,
        "xgmi_link_width": model.xgmi.width,
        "xgmi_link_speed": model.xgmi.gigabits,
        "xgmi_link_status": _filled([int(up) for up in state.links_up], 8),
        "xgmi_read_data_acc": _filled([int(n / _KILOBYTE) for n in state.read], 8),
        "xgmi_write_data_acc": _filled([int(n / _KILOBYTE) for n in state.written], 8),
        "pcie_bandwidth_acc": int(state.pcie_bytes / 1e6),
        "pcie_bandwidth_inst": int(state.pcie_rate / 1e6),
        "pcie_l0_to_recov_count_acc": state.replays // 50,
        "pcie_replay_count_acc": state.replays,
        "pcie_replay_rover_count_acc": state.replays // 4,
        "pcie_nak_sent_count_acc": state.replays // 3,
        "pcie_nak_rcvd_count_acc": state.replays // 2,
        "pcie_lc_perf_other_end_recovery": 0,
        "accumulation_counter": ticks(state.loaded_for),
        **{f"{name}_residency_acc": ticks(s) for name, s in state.residencies.items()},
        "vram_max_bandwidth": model.bandwidth,
        "current_gfxclks": [state.gfx_clock] * 8,
        "current_socclks": [model.soc_clock.high] * 4,
        "current_vclk0s": [29] * 4,
        "current_dclk0s": [22] * 4,
    }

    def each(key: str, values: list[int]) -> None:
        """The same for the compute dies of every partition."""
        row = _filled(values, _PER_PARTITION[key])
        empty = [NA] * _PER_PARTITION[key]
        count = model.partitions
        table[f"xcp_stats.{key}"] = [row] * count + [empty] * (_PARTITIONS - count)

    each("gfx_busy_inst", [busy] * dies)
    each("gfx_busy_acc", [int(100 * state.gfx_seconds * TICKS_PER_SECOND)] * dies)
    each("jpeg_busy", [0] * (32 // model.partitions))
    each("vcn_busy", [0] * (4 // min(4, model.partitions)))
    if model.metrics < (1, 8):
        each("gfx_below_host_limit_acc", total)
        table["num_partition"] = model.partitions
        return table
    each("gfx_below_host_limit_ppt_acc", below["ppt"])
    each("gfx_below_host_limit_thm_acc", below["socket_thm"])
    each("gfx_below_host_limit_total_acc", total)
    each("gfx_low_utilization_acc", [ticks(state.loaded_for - state.gfx_seconds)] * dies)
    each("temperature_xcd", [int(state.celsius["junction"]) - 2] * dies)
    table["temperature_hbm_stacks"] = _filled(hbm_celsius(model, state), 12)
    table["temperature_mid"] = [int(state.celsius["vr"])] * 2
    table["temperature_aid"] = [int(state.celsius["junction"]) - 6] * 2
    table["current_uclk_aid"] = [state.memory_clock] * 2
    table["current_socclks_mid"] = [model.soc_clock.high] * 2
    return table
