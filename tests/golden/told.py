"""What the simulated kernel is told, so that no two numbers of a family are the same.

`tell` sets every field that a library or the exporter reads, in the table gpu_metrics and in the
files alike, to a value of its own per GPU, link, die, block and sensor. `step` lets five seconds
pass on the hardware's clocks and moves each counter by an amount of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.kernel import metrics as blob
from tests.kernel.metrics import Value
from tests.kernel.node import MIB, Node

ELAPSED = 5
"""Seconds between the two polls of a page, on the hardware's clocks and on the reader's."""
ENABLED_BLOCKS = ("umc", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl", "df")
"""The RAS blocks that the simulated kernel's feature mask 0x1fd enables."""
PAGE_LETTERS = {"retired": "R", "pending": "P", "unreservable": "F"}
RESIDENCIES = {
    "prochot": "prochot_residency_acc",
    "power": "ppt_residency_acc",
    "junction_thermal": "socket_thm_residency_acc",
    "vr_thermal": "vr_thm_residency_acc",
    "hbm_thermal": "hbm_thm_residency_acc",
}
HWMON = {"edge": 1, "junction": 2, "hbm": 3}
SENSORS = {"edge": (41, 60, 110), "junction": (61, 80, 120), "hbm": (71, 90, 130)}
"""Temperature of the first GPU, and its two limits."""
CONTAINER = "5ca1ab1e" * 8


@dataclass(frozen=True, slots=True)
class ToldProcess:
    """A process and the memory that it holds of one GPU.

    Attributes:
        place: it is on the GPU of this number, counted round; and, on partitioned ones, on the
            partition of this number from the last.
        kfd, drm: bytes that each of the two tells; None if it tells nothing of it.
        cgroup, environment: as the kernel shows them.
        labels: of the process, those that are not empty.
        state: as the exporter calls it.
    """

    pid: int
    place: int
    kfd: int | None
    drm: int | None
    cgroup: str
    environment: Mapping[str, str]
    uid: int
    labels: Mapping[str, str]
    state: str = "running"

    @property
    def vram(self) -> int:
        """What it holds in truth."""
        return max(self.kfd or 0, self.drm or 0)


PROCESSES = (
    ToldProcess(
        4201,
        0,
        3 * 512 * MIB + 4096,
        3 * 512 * MIB,  # in whole KiB, and without what KFD allocates
        "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
        {"SLURM_JOB_ID": "999", "SECRET": "never shown"},
        0,
        {"command": "train", "user": "root", "job_id": "4711"},
    ),
    ToldProcess(
        4202,
        1,
        4 * 512 * MIB + 4096,
        5 * 512 * MIB + 8192,
        f"0::/system.slice/docker-{CONTAINER}.scope",
        {"PBS_JOBID": "17.server", "SECRET": "never shown"},
        987654,  # has no name
        {
            "command": "serve (1)",
            "user": "987654",
            "container_id": CONTAINER,
            "job_id": "17.server",
        },
    ),
    ToldProcess(
        4203,
        0,
        None,
        96 * MIB,
        "0::/user.slice/user-0.slice/session-3.scope",
        {},
        0,
        {"command": "render", "user": "root"},
    ),
    ToldProcess(4204, 1, 64 * MIB, None, "", {}, 0, {}, "gone"),
)


class Told:
    """A simulated node and its state at the two polls.

    Attributes:
        node: with the files as they were at both polls.
        before, after: the fields of gpu_metrics at the first and the second poll.
        held: bytes of VRAM that compute processes hold as KFD tells, by GPU and partition.
        processes: those that hold memory, by GPU and partition.
        replays_before: the file pcie_replay_count at the first poll.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.before: list[dict[str, Value]] = []
        self.after: list[dict[str, Value]] = []
        self.replays_before: list[int] = []
        self.held: dict[tuple[int, int], int] = {}
        self.processes: dict[tuple[int, int], list[ToldProcess]] = {}

    def gpu(self, address: str) -> int:
        """The place of a GPU by its PCI address."""
        return next(gpu.index for gpu in self.node.gpus if gpu.bdf == address)


def _levels(current: int, highest: int) -> str:
    return f"0: 11Mhz\n1: {current}Mhz *\n2: {highest}Mhz"


def _mean(value: Value) -> int:
    numbers = [value] if isinstance(value, int) else list(value)
    return round(sum(numbers) / len(numbers))


def _table(node: Node, gpu: int) -> dict[str, Value]:
    """New values for the fields of gpu_metrics that the node has."""
    links = range(len(_list(node.state[gpu].get("xgmi_read_data_acc", ()))))
    fields: dict[str, Value] = {
        "temperature_hotspot": 61 + gpu,
        "temperature_mem": 71 + gpu,
        "temperature_vrsoc": 51 + gpu,
        "temperature_edge": 41 + gpu,
        "temperature_vrgfx": 31 + gpu,
        "temperature_vrmem": 21 + gpu,
        "average_gfx_activity": 12 + 7 * gpu,
        "average_umc_activity": 5 + 6 * gpu,
        "average_mm_activity": 3 + 5 * gpu,
        "pcie_link_width": 16 >> gpu % 2,
        "pcie_link_speed": 10 * node.model.pcie_gts >> gpu % 2,
        "pcie_bandwidth_acc": 31_000 + 101 * gpu,
        "pcie_bandwidth_inst": 41 + gpu,
        "pcie_l0_to_recov_count_acc": 1_100 + gpu,
        "pcie_replay_count_acc": 2_100 + gpu,
        "pcie_replay_rover_count_acc": 3_100 + gpu,
        "pcie_nak_sent_count_acc": 4_100 + gpu,
        "pcie_nak_rcvd_count_acc": 5_100 + gpu,
        "xgmi_link_speed": node.model.xgmi_gbps + gpu,
        "xgmi_read_data_acc": [10_000_000 * (gpu + 1) + 1_111 * (k + 1) for k in links],
        "xgmi_write_data_acc": [20_000_000 * (gpu + 1) + 2_222 * (k + 1) for k in links],
        # the first link of the second GPU is down
        "xgmi_link_status": [int((gpu, k) != (1, 0)) for k in links],
        "vcn_activity": [2 + 3 * gpu + 4 * k for k in range(4)],
        "vcn_busy": [2 + 3 * gpu + 4 * k for k in range(4)],
        "mem_max_bandwidth": node.model.memory_bandwidth_gbs + gpu,
        "current_uclk": 901 + gpu,
    }
    for name, base in (("gfxclk", 1_201), ("socclk", 501), ("vclk0", 601), ("dclk0", 701)):
        one = isinstance(node.state[gpu][f"current_{name}"], int)
        count = range(node.model.xccs if name == "gfxclk" else 4)
        fields[f"current_{name}"] = base + gpu if one else [base + 10 * k + gpu for k in count]
    flat: list[int] = []  # as version 1.9 has the dies, those of all partitions in one row
    for part in range(node.partitions):
        dies = range(node.model.xccs // node.partitions)
        busy = [11 + 9 * gpu + 7 * part + k for k in dies]
        fields[f"xcp{part}_gfx_busy_inst"] = busy
        flat += busy
        fields[f"xcp{part}_vcn_busy"] = [
            2 + 3 * gpu + 4 * (k + part) for k in range(1 if node.partitions > 1 else 4)
        ]
    fields["gfx_busy_inst"] = flat
    if "temperature_hbm" in node.state[gpu]:
        stacks = range(len(_list(node.state[gpu]["temperature_hbm"])))
        fields["temperature_hbm"] = [20 + 9 * k + gpu for k in stacks]
    if not node.gpus[gpu].secondary:
        fields["energy_accumulator"] = 15_000_000_000 + 7_654_321 * gpu
    return {name: value for name, value in fields.items() if name in known(node)}


def known(node: Node) -> frozenset[str]:
    """The fields that the node's version of gpu_metrics has."""
    return frozenset(field.name for field in blob.fields(node.metrics_version))


def _list(value: Value) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def tell(node: Node) -> Told:
    """Set everything; the first poll is to follow."""
    told = Told(node)
    for gpu, described in enumerate(node.gpus):
        node.metrics(gpu, **_table(node, gpu))
        state = node.state[gpu]
        if not described.secondary:
            node.power(gpu, 201 + 11 * gpu)
            node.set(gpu, "hwmon/power1_cap", (node.model.power_cap_watts - 9 * gpu) * 10**6)
        for sensor, (degrees, critical, emergency) in SENSORS.items():
            if sensor != "edge" or node.model.edge_sensor:
                channel = f"hwmon/temp{HWMON[sensor]}"
                node.set(gpu, f"{channel}_input", (degrees + gpu) * 1000)
                node.set(gpu, f"{channel}_crit", (critical + gpu) * 1000)
                node.set(gpu, f"{channel}_emergency", (emergency + gpu) * 1000)
        if gpu == 2:  # its firmware tells no limits of the memory: zero
            node.set(gpu, "hwmon/temp3_crit", 0)
            node.set(gpu, "hwmon/temp3_emergency", 0)
        _tell_files(told, gpu, state)
        _tell_errors(node, gpu)
    for process in PROCESSES:
        _tell_process(told, process)
    return told


def _tell_process(told: Told, process: ToldProcess) -> None:
    node = told.node
    gpu = process.place % len(node.gpus)
    partition = (-1 - process.place) % node.partitions
    node.process(
        process.pid,
        {gpu: process.vram if process.kfd is None else process.kfd},
        name=process.labels.get("command", ""),
        partition=partition,
        alive=process.state != "gone",
        kfd=process.kfd is not None,
        uid=process.uid,
        cgroup=process.cgroup,
        environment=process.environment,
        drm={gpu: process.drm} if process.drm is not None else None,
    )
    told.held[gpu, partition] = told.held.get((gpu, partition), 0) + (process.kfd or 0)
    told.processes.setdefault((gpu, partition), []).append(process)


def _tell_files(told: Told, gpu: int, state: Mapping[str, Value]) -> None:
    """The files that say the same as gpu_metrics, and those that stand alone."""
    node = told.node
    used = 10_000 * MIB + 1_234 * MIB * gpu + 4096 * gpu
    speed = node.model.pcie_gts >> gpu % 2
    files: dict[str, str | int] = {
        "gpu_busy_percent": 12 + 7 * gpu,
        "mem_busy_percent": 5 + 6 * gpu,
        "mem_info_vram_used": used,
        "mem_info_vis_vram_total": (256 + gpu) * MIB,
        "mem_info_vis_vram_used": (100 + gpu) * MIB + 4096,
        "mem_info_gtt_total": (64_000 + 2 * gpu) * MIB,
        "mem_info_gtt_used": (21 + 3 * gpu) * MIB + 8192,
        "current_link_speed": f"{speed}.0 GT/s PCIe",
        "current_link_width": 16 >> gpu % 2,
        "pcie_replay_count": 2_100 + gpu,
        "pp_dpm_sclk": _levels(_mean(state["current_gfxclk"]), node.model.sclk_mhz[-1]),
        "pp_dpm_mclk": _levels(901 + gpu, node.model.mclk_mhz[-1]),
        "pp_dpm_socclk": _levels(_mean(state["current_socclk"]), 1_191 + gpu),
        "pp_dpm_vclk": _levels(_mean(state["current_vclk0"]), 1_501 + gpu),
        "pp_dpm_dclk": _levels(_mean(state["current_dclk0"]), 1_251 + gpu),
        "fw_version/smc_fw_version": f"0x{0x00557301 + gpu:08x}",
    }
    if node.model.xcp_devices > 1:
        engines = range(node.partitions if node.partitions > 1 else 4)
        files["vcn_busy_percent"] = _mean([2 + 3 * gpu + 4 * k for k in engines])
    else:
        files["hwmon/pwm1"] = 79 + gpu  # these models get a fan
        files["hwmon/pwm1_enable"] = 2
        files["hwmon/fan1_input"] = 1_300 + gpu
        files["hwmon/fan1_max"] = 4_000
    for name, content in files.items():
        node.set(gpu, name, content)


def _tell_errors(node: Node, gpu: int) -> None:
    for number, block in enumerate(ENABLED_BLOCKS):
        node.ras(gpu, block, **error_counts(gpu, number))
    node.ras(gpu, "sdma", ue=999_001, ce=999_002, de=999_003)  # not enabled: nobody may see it
    lines = [
        f"0x{page:08x} : 0x00001000 : {letter}"
        for number, letter in enumerate(PAGE_LETTERS.values())
        for page in range(0x1000 * (number + 1), 0x1000 * (number + 1) + bad_pages(gpu, letter))
    ]
    node.set(gpu, "ras/gpu_vram_bad_pages", "\n".join(lines))
    node.aer(gpu, "correctable", BadTLP=10 + gpu, RxErr=200)
    node.aer(gpu, "nonfatal", CmpltTO=20 + gpu, TLP=200)
    node.aer(gpu, "fatal", DLP=30 + gpu, TLP=200)


def error_counts(gpu: int, block: int) -> dict[str, int]:
    """The counts of a RAS block, by the name that the kernel's file has for each severity."""
    return {
        "ue": 1_000 + 100 * gpu + block,
        "ce": 2_000 + 100 * gpu + block,
        "de": 3_000 + 100 * gpu + block,
    }


def bad_pages(gpu: int, letter: str) -> int:
    """How many bad pages of a state there are."""
    return {"R": 3, "P": 13, "F": 23}[letter] + gpu


def step(told: Told) -> None:
    """Five seconds pass; every counter moves by an amount of its own."""
    node = told.node
    told.before = copy.deepcopy(node.state)
    told.replays_before = [int(node.get(gpu.index, "pcie_replay_count")) for gpu in node.gpus]
    node.advance(ELAPSED)
    for gpu in range(len(node.gpus)):
        state = node.state[gpu]
        moved: dict[str, Value] = {}
        for number, name in enumerate(RESIDENCIES.values()):
            moved[name] = _one(state.get(name, 0)) + 300 * (number + 1) + 20 * gpu
        for base, name in (
            (11, "pcie_l0_to_recov_count_acc"),
            (15 + gpu, "pcie_replay_count_acc"),
            (13, "pcie_replay_rover_count_acc"),
            (17, "pcie_nak_sent_count_acc"),
            (19, "pcie_nak_rcvd_count_acc"),
            (777, "pcie_bandwidth_acc"),
        ):
            moved[name] = _one(state.get(name, 0)) + base
        for base, name in ((3_000, "xgmi_read_data_acc"), (7_000, "xgmi_write_data_acc")):
            moved[name] = [
                kilobytes + base * (gpu + 1) + 50 * link
                for link, kilobytes in enumerate(_list(state.get(name, ())))
            ]
        dies = [name for name in state if "gfx_below_host_limit" in name]
        for name in dies:
            moved[name] = [
                ticks + 100 * (die + 1) + 10 * gpu for die, ticks in enumerate(_list(state[name]))
            ]
        node.metrics(gpu, **{name: value for name, value in moved.items() if name in known(node)})
        node.set(gpu, "pcie_replay_count", told.replays_before[gpu] + 15 + gpu)
    told.after = copy.deepcopy(node.state)


def _one(value: Value) -> int:
    assert isinstance(value, int)
    return value
