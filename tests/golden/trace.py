"""What each series must show, worked out from what the simulated kernel was told.

Nothing here calls the exporter. One function per family takes what was told, the GPU and the
series' labels, and gives the number in base units; `TRACES` is the list of them, and a family of
the hardware that is not in it fails its test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.golden.page import BOOT, FALLBACK, KERNEL
from tests.golden.told import (
    ELAPSED,
    ENABLED_BLOCKS,
    HWMON,
    PAGE_LETTERS,
    PROCESSES,
    RESIDENCIES,
    Told,
    ToldProcess,
    bad_pages,
    error_counts,
)
from tests.kernel.metrics import Value
from tests.kernel.node import DRIVER_VERSION

Labels = Mapping[str, str]
Trace = Callable[[Told, int, Labels], float]

_SEVERITIES = {"correctable": "ce", "uncorrectable": "ue", "deferred": "de"}


class NeverToldError(Exception):
    """The simulated kernel told nothing of the kind."""


def _field(fields: Mapping[str, Value], name: str, *places: int) -> int:
    """A number that gpu_metrics held at one of the polls."""
    try:
        value = fields[name]
        return value if isinstance(value, int) else value[places[0]]
    except (KeyError, IndexError) as error:
        raise NeverToldError(f"{name} {places}") from error


def _average(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)


def _numbers(value: Value) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _metric(name: str, scale: float = 1) -> Trace:
    return lambda told, gpu, _: _field(told.after[gpu], name) * scale


def _file(name: str, scale: float = 1) -> Trace:
    return lambda told, gpu, _: int(told.node.get(gpu, name)) * scale


def _temperature(told: Told, gpu: int, labels: Labels) -> float:
    names = {
        "edge": "edge",
        "junction": "hotspot",
        "hbm": "mem",
        "vr_gfx": "vrgfx",
        "vr_soc": "vrsoc",
        "vr_hbm": "vrmem",
    }
    return _field(told.after[gpu], f"temperature_{names[labels['sensor']]}")


def _limit(told: Told, gpu: int, labels: Labels) -> float:
    sensor, limit = labels["sensor"], labels["limit"]
    channel = f"hwmon/temp{HWMON[sensor]}"
    if limit.startswith("configured_"):
        if int(told.node.get(gpu, f"{channel}_crit")) != 0:
            raise NeverToldError("the device has a limit, the fallback is not for it")
        return FALLBACK[limit.replace("configured", "temperature")][sensor]
    millidegrees = int(told.node.get(gpu, f"{channel}_{limit[:4].replace('emer', 'emergency')}"))
    if millidegrees == 0:
        raise NeverToldError("0 is no limit")
    return millidegrees / 1000


def _power(told: Told, gpu: int, _: Labels) -> float:
    if told.node.gpus[gpu].secondary:
        raise NeverToldError("a secondary die has no sensor")
    old = "average_socket_power" if told.node.metrics_version == (1, 3) else "curr_socket_power"
    return _field(told.after[gpu], old)


def _energy(told: Told, gpu: int, labels: Labels) -> float:
    started = _field(told.before[gpu], "energy_accumulator") / 65536
    return started + _power(told, gpu, labels) * ELAPSED


def _clock(told: Told, gpu: int, labels: Labels) -> float:
    names = {
        "gfx": "gfxclk",
        "memory": "uclk",
        "soc": "socclk",
        "video": "vclk0",
        "decode": "dclk0",
    }
    return _average(_numbers(told.after[gpu][f"current_{names[labels['clock']]}"])) * 1e6


def _clock_max(told: Told, gpu: int, labels: Labels) -> float:
    files = {"gfx": "sclk", "memory": "mclk", "soc": "socclk", "video": "vclk", "decode": "dclk"}
    last = told.node.get(gpu, f"pp_dpm_{files[labels['clock']]}").splitlines()[-1]
    return float(last.split()[1].removesuffix("Mhz")) * 1e6


def _dies(told: Told, gpu: int, labels: Labels) -> list[int]:
    """The activity of the dies of a partition, in percent."""
    fields = told.after[gpu]
    if "gfx_busy_inst" in fields:  # 1.9: all partitions in one row
        return _numbers(fields["gfx_busy_inst"])
    return _numbers(fields[f"xcp{labels.get('partition', '0')}_gfx_busy_inst"])


def _gfx(told: Told, gpu: int, labels: Labels) -> float:
    if "partition" in labels:
        return _average(_dies(told, gpu, labels)) / 100
    return _field(told.after[gpu], "average_gfx_activity") / 100


def _media(told: Told, gpu: int, _: Labels) -> float:
    fields, version = told.after[gpu], told.node.metrics_version
    if version == (1, 3):
        return _field(fields, "average_mm_activity") / 100
    if version < (1, 6):
        return _average(_numbers(fields["vcn_activity"])) / 100
    if version == (1, 9):
        return _average(_numbers(fields["vcn_busy"])) / 100
    parts = range(told.node.partitions)
    return _average([n for part in parts for n in _numbers(fields[f"xcp{part}_vcn_busy"])]) / 100


def _over_time(trace: Trace) -> Trace:
    return lambda told, gpu, labels: trace(told, gpu, labels) * ELAPSED


def _vram_total(told: Told, gpu: int, labels: Labels) -> float:
    if "partition" in labels:
        return told.node.gpus[gpu].partitions[int(labels["partition"])].vram_bytes
    return told.node.model.vram_bytes


def _vram_used(told: Told, gpu: int, labels: Labels) -> float:
    used = int(told.node.get(gpu, "mem_info_vram_used"))
    match labels.get("partition"):
        case None:
            return used
        case "shared":
            return used - sum(held for (of, _), held in told.held.items() if of == gpu)
        case partition:
            return told.held.get((gpu, int(partition)), 0)


def _processes(told: Told, gpu: int, labels: Labels) -> list[ToldProcess]:
    """Those that hold memory of a GPU or partition."""
    return told.processes.get((gpu, int(labels.get("partition", 0))), [])


def _process_vram(told: Told, gpu: int, labels: Labels) -> float:
    for process in _processes(told, gpu, labels):
        if str(process.pid) == labels["pid"]:
            return process.vram
    raise NeverToldError("no such process is there")


def _zombies(told: Told, gpu: int, labels: Labels) -> float:
    return sum(p.vram for p in _processes(told, gpu, labels) if p.state in ("zombie", "gone"))


def _process(labels: Labels) -> ToldProcess:
    for process in PROCESSES:
        if str(process.pid) == labels["pid"]:
            return process
    raise NeverToldError("there is no such process")


def _process_info(_: Told, __: int, labels: Labels) -> float:
    told = _process(labels).labels
    for name, value in labels.items():
        if name != "pid" and value != told.get(name, ""):
            raise NeverToldError(f"{name} is {value!r}")
    return 1


def _process_state(_: Told, __: int, labels: Labels) -> float:
    return _process(labels).state == labels["state"]


def _allocated(told: Told, gpu: int, labels: Labels) -> list[ToldProcess]:
    """The processes of a batch job on a GPU; nobody tells of containers here."""
    found = [
        process
        for process in _processes(told, gpu, labels)
        if process.labels.get("job_id") == labels["job_id"] != ""
    ]
    if not found or {labels[name] for name in ("namespace", "pod", "container")} != {""}:
        raise NeverToldError("it was given to nobody of that name")
    if any(process.labels["user"] != labels["user"] for process in found):
        raise NeverToldError("the job is another user's")
    return found


def _link(told: Told, gpu: int, labels: Labels) -> int:
    """The number of a link; its peer must be the GPU that the kernel says is at its other end."""
    link = int(labels["link"])
    others = [other.bdf for other in told.node.gpus if other.index != gpu]
    if others[link] != labels["peer"]:
        raise NeverToldError(f"link {link} of GPU {gpu} leads to {others[link]}")
    return link


def _xgmi_bytes(name: str) -> Trace:
    return lambda told, gpu, labels: _field(told.after[gpu], name, _link(told, gpu, labels)) * 1024


def _xgmi_rate(name: str) -> Trace:
    def trace(told: Told, gpu: int, labels: Labels) -> float:
        link = _link(told, gpu, labels)
        moved = _field(told.after[gpu], name, link) - _field(told.before[gpu], name, link)
        return moved * 1024 / ELAPSED

    return trace


def _xgmi_up(told: Told, gpu: int, labels: Labels) -> float:
    return _field(told.after[gpu], "xgmi_link_status", _link(told, gpu, labels))


def _xgmi_max(told: Told, gpu: int, labels: Labels) -> float:
    _link(told, gpu, labels)
    lanes = _field(told.after[gpu], "xgmi_link_width")
    return lanes * _field(told.after[gpu], "xgmi_link_speed") * 1e9 / 8


def _block(told: Told, gpu: int, block: str, severity: str) -> float:
    if severity == "deferred" and not told.node.model.ras_aca:
        raise NeverToldError("its kernel files have no deferred errors")
    return error_counts(gpu, ENABLED_BLOCKS.index(block))[_SEVERITIES[severity]]


def _replays(told: Told, gpu: int, _: Labels) -> float:
    return told.replays_before[gpu] + 15 + gpu


def _speed(name: str) -> Trace:
    return lambda told, gpu, _: float(told.node.get(gpu, name).split()[0]) * 1e9


def _nak(told: Told, gpu: int, labels: Labels) -> float:
    short = {"sent": "sent", "received": "rcvd"}[labels["direction"]]
    return _field(told.after[gpu], f"pcie_nak_{short}_count_acc")


def _aer(told: Told, gpu: int, labels: Labels) -> float:
    lines = told.node.get(gpu, f"aer_dev_{labels['severity']}").splitlines()
    counts = dict(line.split() for line in lines if not line.startswith("TOTAL"))
    return sum(map(int, counts.values()))


def _share(told: Told, gpu: int, name: str, *places: int) -> float:
    """How much of the firmware's ticks between the two polls a counter makes up."""
    after, before = told.after[gpu], told.before[gpu]
    ticks = _field(after, "accumulation_counter") - _field(before, "accumulation_counter")
    return (_field(after, name, *places) - _field(before, name, *places)) / ticks


def _throttle(told: Told, gpu: int, labels: Labels) -> float:
    return _share(told, gpu, RESIDENCIES[labels["reason"]])


def _below_limit(told: Told, gpu: int, labels: Labels) -> float:
    part, die = labels.get("partition", "0"), int(labels["xcc"])
    for name in ("gfx_below_host_limit_total_acc", "gfx_below_host_limit_acc"):
        wanted = {(1, 7): "gfx_below_host_limit_acc"}.get(told.node.metrics_version, name)
        if wanted in told.after[gpu]:
            return _share(told, gpu, wanted, die)
        if f"xcp{part}_{wanted}" in told.after[gpu]:
            return _share(told, gpu, f"xcp{part}_{wanted}", die)
    raise NeverToldError("no time below the host's limit")


def _xcc(told: Told, gpu: int, labels: Labels) -> float:
    return _dies(told, gpu, labels)[int(labels["xcc"])] / 100


def _firmware(told: Told, _: int, labels: Labels) -> float:
    name = f"fw_version/{labels['block']}_fw_version"
    indexes = [gpu.index for gpu in told.node.gpus]
    return sum(told.node.get(gpu, name) == labels["version"] for gpu in indexes)


def _info(told: Told, gpu: int, labels: Labels) -> float:
    """1, if every label that is not empty says what the kernel or the model says."""
    node, described = told.node, told.node.gpus[gpu]
    model = node.model
    first = gpu * node.partitions
    unique = f"{described.unique_id:016x}"
    gfx = model.gfx_version
    expected = {
        # of AMD SMI: the unique id's first byte, revision or ff, device; of ROCm SMI as HIP has it
        "uuid": {
            f"{unique[:2]}{part}{model.device_id:04x}-0000-1000-80{unique[2:4]}-{unique[4:]}"
            for part in ("ff", "00")
        }
        | {f"GPU-{unique}"},
        "name": {f"AMD {model.market_name}", *_OTHER_NAMES.get(model.name, ())},
        "gfx_target": {f"gfx{gfx // 10000}{gfx // 100 % 100:x}{gfx % 100:x}"},
        "serial": {described.serial},
        "vbios_version": {f"113-{model.sku}-100"},
        "partition_mode": {"CPX" if node.partitions > 1 else "SPX"},
        "memory_partition": {"NPS1"},
        "vendor_index": {str(gpu), str(first)},
        "hip_index": {str(first)},
        "oam_id": {str(gpu)},
        "render_node": {f"renderD{described.render}"},
        "numa_node": {str(described.numa_node)},
    }
    for name, texts in expected.items():
        if labels[name] not in texts | {""}:
            raise NeverToldError(f"{name} is {labels[name]!r}, not one of {sorted(texts)}")
    return 1


_OTHER_NAMES = {
    "MI300X": ("MI300X-O",),  # AMD SMI 6.1.2 has a table of its own
    # AMD SMI 10.1 answers so where libdrm does not know the revision
    "MI250X": ("AMD Radeon Graphics",),
    "MI325X": ("AMD Radeon Graphics",),
}
"""What the libraries call a model themselves."""


def _node_info(_: Told, __: int, labels: Labels) -> float:
    told = {"driver_version": DRIVER_VERSION, "kernel_version": KERNEL, "boot_id": BOOT}
    for name, text in told.items():
        if labels[name] not in (text, ""):
            raise NeverToldError(f"{name} is {labels[name]!r}")
    return 1


TRACES: Mapping[str, Trace] = {
    "amdgpu_up": lambda *_: 1,
    "amdgpu_suspended": lambda *_: 0,
    "amdgpu_devices": lambda told, *_: len(told.node.gpus),
    "amdgpu_node_info": _node_info,
    "amdgpu_info": _info,
    "amdgpu_temperature_celsius": _temperature,
    "amdgpu_hbm_temperature_celsius": _metric("temperature_mem"),
    "amdgpu_hbm_stack_temperature_celsius": lambda told, gpu, labels: _field(
        told.after[gpu], "temperature_hbm", int(labels["stack"])
    ),
    "amdgpu_temperature_limit_celsius": _limit,
    "amdgpu_power_watts": _power,
    "amdgpu_power_limit_watts": _file("hwmon/power1_cap", 1e-6),
    "amdgpu_energy_joules_total": _energy,
    "amdgpu_clock_hertz": _clock,
    "amdgpu_clock_max_hertz": _clock_max,
    "amdgpu_gfx_activity_ratio": _gfx,
    "amdgpu_memory_activity_ratio": _metric("average_umc_activity", 0.01),
    "amdgpu_media_activity_ratio": _media,
    "amdgpu_gfx_active_seconds_total": _over_time(_gfx),
    "amdgpu_memory_active_seconds_total": _over_time(_metric("average_umc_activity", 0.01)),
    "amdgpu_vram_total_bytes": _vram_total,
    "amdgpu_vram_used_bytes": _vram_used,
    "amdgpu_processes": lambda told, gpu, labels: len(_processes(told, gpu, labels)),
    "amdgpu_process_vram_bytes": _process_vram,
    "amdgpu_vram_zombie_bytes": _zombies,
    "amdgpu_process_info": _process_info,
    "amdgpu_allocation_info": lambda *at: bool(_allocated(*at)),
    "amdgpu_allocation_vram_bytes": lambda *at: sum(p.vram for p in _allocated(*at)),
    "amdgpu_process_state": _process_state,
    "amdgpu_vram_visible_total_bytes": _file("mem_info_vis_vram_total"),
    "amdgpu_vram_visible_used_bytes": _file("mem_info_vis_vram_used"),
    "amdgpu_gtt_total_bytes": _file("mem_info_gtt_total"),
    "amdgpu_gtt_used_bytes": _file("mem_info_gtt_used"),
    "amdgpu_vram_max_bandwidth_bytes_per_second": _metric("mem_max_bandwidth", 1e9),
    "amdgpu_xgmi_receive_bytes_total": _xgmi_bytes("xgmi_read_data_acc"),
    "amdgpu_xgmi_transmit_bytes_total": _xgmi_bytes("xgmi_write_data_acc"),
    "amdgpu_xgmi_receive_bytes_per_second": _xgmi_rate("xgmi_read_data_acc"),
    "amdgpu_xgmi_transmit_bytes_per_second": _xgmi_rate("xgmi_write_data_acc"),
    "amdgpu_xgmi_link_up": _xgmi_up,
    "amdgpu_xgmi_link_max_bytes_per_second": _xgmi_max,
    "amdgpu_xgmi_errors_total": lambda told, gpu, labels: _block(
        told, gpu, "xgmi_wafl", labels["severity"]
    ),
    "amdgpu_pcie_replays_total": _replays,
    "amdgpu_pcie_replays_per_second": lambda told, gpu, _: (15 + gpu) / ELAPSED,
    "amdgpu_pcie_replay_rollovers_total": _metric("pcie_replay_rover_count_acc"),
    "amdgpu_pcie_l0_recoveries_total": _metric("pcie_l0_to_recov_count_acc"),
    "amdgpu_pcie_naks_total": _nak,
    "amdgpu_pcie_link_transfers_per_second": _speed("current_link_speed"),
    "amdgpu_pcie_link_max_transfers_per_second": _speed("max_link_speed"),
    "amdgpu_pcie_link_width_lanes": _file("current_link_width"),
    "amdgpu_pcie_link_max_width_lanes": _file("max_link_width"),
    "amdgpu_pcie_aer_errors_total": _aer,
    "amdgpu_ecc_errors_total": lambda told, gpu, labels: _block(
        told, gpu, labels["block"], labels["severity"]
    ),
    "amdgpu_bad_pages": lambda _, gpu, labels: bad_pages(gpu, PAGE_LETTERS[labels["state"]]),
    "amdgpu_throttle_ratio": _throttle,
    "amdgpu_throttle_seconds_total": _over_time(_throttle),
    "amdgpu_fan_speed_ratio": _file("hwmon/pwm1", 1 / 255),
    "amdgpu_firmware_devices": _firmware,
    "amdgpu_partitions": lambda told, *_: told.node.partitions,
    "amdgpu_xcc_activity_ratio": _xcc,
    "amdgpu_below_host_limit_ratio": _below_limit,
    "amdgpu_pcie_traffic_raw_total": _metric("pcie_bandwidth_acc"),
    "amdgpu_pcie_traffic_instant_raw": _metric("pcie_bandwidth_inst"),
}
"""Family to what its series must show."""


def expected(told: Told, name: str, labels: Labels) -> float:
    """What a sample must show.

    Raises:
        NeverToldError: the simulated kernel was told nothing that this could come from.
        KeyError: the family, or one of its labels, is not known here.
    """
    gpu = told.gpu(labels["pci_address"]) if "pci_address" in labels else 0
    # AMD SMI's sockets are counted, ROCm SMI's index counts the partitions before a socket
    if "gpu" in labels and int(labels["gpu"]) not in (gpu, gpu * told.node.partitions):
        raise NeverToldError(f"GPU {gpu} is called {labels['gpu']}")
    return TRACES[name](told, gpu, labels)
