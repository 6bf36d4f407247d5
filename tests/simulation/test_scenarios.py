"""Each scenario changes what it says and nothing else: compared with the same node without it."""

from __future__ import annotations

import re

import pytest

from exporter.simulation.amdsmi import Handle, SimulatedAmdSmi
from exporter.simulation.files import SimulatedFiles
from exporter.simulation.node import SimulatedNode
from exporter.simulation.scenarios import FAULTS, RESIDUE
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.simulation import HandClock, node_at, walk, with_runs

START, END = 1000.0, 9000.0
TRAINING = ScenarioRun("training")
GPU = 3


def _shown(node: SimulatedNode) -> dict[tuple[int, str], object]:
    """All that a node shows, by device and name: gpu_metrics' entries and the files."""
    files, api = SimulatedFiles(node), SimulatedAmdSmi(node)
    shown: dict[tuple[int, str], object] = {}
    for device in node.devices:
        if node.present(device.number):
            handle = Handle(device.number, 0)
            for key, value in api.amdsmi_get_gpu_metrics_info(handle).items():
                shown[device.number, key] = value
            base = f"/sys/bus/pci/devices/{device.address}"
            for path, text in walk(files, base):
                shown[device.number, path[len(base) + 1 :]] = text
    for process in node.processes():
        number = next(d.number for d in node.devices if process.gpu_id == d.partitions[0].gpu_id)
        shown[number, "process"] = process.vram
    return shown


def _changed(run: ScenarioRun, moment: float, model: str = "MI300X") -> set[tuple[int, str]]:
    """What differs because of one run, at a moment."""
    without = _shown(node_at(moment, with_runs(TRAINING, model=model)))
    with_it = _shown(node_at(moment, with_runs(TRAINING, run, model=model)))
    return {key for key in without.keys() | with_it.keys() if without.get(key) != with_it.get(key)}


CHANGES = {
    "hbm-overheat": "temperature_mem|hwmon/.*/temp3_input",
    "pcie-replays": "pcie_.*_count_acc|pcie_replay_count|aer_dev_correctable",
    "pcie-degraded": "pcie_link_(width|speed)|current_link_(width|speed)",
    "xgmi-link-down": "xgmi_(read|write)_data_acc|xgmi_link_status",
    "vram-leak": "mem_info_(vis_)?vram_used|process",
    "vram-residue": "mem_info_(vis_)?vram_used",
    "ecc-storm": "ras/umc_err_count|ras/gpu_vram_bad_pages",
    "throttle": "(ppt|socket_thm)_residency_acc|current_gfxclks?|hwmon/.*/freq1_input|pp_dpm_sclk"
    "|xcp_stats.gfx_below_host_limit_acc",
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_fault_changes_what_it_says_and_nothing_else(name: str) -> None:
    """Each pattern of the table is met, and nothing beyond it, on one GPU (a link has two ends)."""
    changed = _changed(ScenarioRun(name, START, END, GPU), END - 500)
    assert {f for _, f in changed if not re.fullmatch(CHANGES[name], f)} == set()
    for pattern in CHANGES[name].split("|"):
        if "(" not in pattern and ")" not in pattern:
            assert any(re.search(pattern, field) for _, field in changed), pattern
    assert ({0, GPU} if name == "xgmi-link-down" else {GPU}) == {number for number, _ in changed}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_nothing_changes_before_the_start(name: str) -> None:
    """A run that has not begun leaves no trace."""
    assert set() == _changed(ScenarioRun(name, START, END, GPU), START - 1)


@pytest.mark.parametrize("name", ["hbm-overheat", "pcie-degraded"])
def test_levels_return_after_the_end(name: str) -> None:
    """What is a level and no count is as it was, some time after the end."""
    assert set() == _changed(ScenarioRun(name, START, END, GPU), END + 3600)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_fault_without_a_gpu_strikes_one_by_the_seed(name: str) -> None:
    """The same seed picks the same GPU, and only one."""

    def struck(seed: int) -> list[int]:
        node = node_at(60.0, with_runs(TRAINING, ScenarioRun(name), seed=seed))
        sound = node_at(60.0, with_runs(TRAINING, seed=seed))
        return [
            d.number
            for d in node.devices
            if node.state(d.number).condition != sound.state(d.number).condition
        ]

    assert [1] * 8 == [len(struck(seed)) for seed in range(8)]
    assert len({struck(seed)[0] for seed in range(8)}) > 1
    assert struck(5) == struck(5)


def test_hbm_passes_its_limit_slowly() -> None:
    """The HBM heats up over minutes, past its critical limit and not to the emergency one."""
    spec = with_runs(TRAINING, ScenarioRun("hbm-overheat", START, gpu=GPU))
    soon, late = (node_at(START + s, spec).state(GPU).celsius["mem"] for s in (5.0, 900.0))
    assert soon < 80
    assert 105 < late < 115


def test_link_down_stops_its_counters() -> None:
    """The link is down at both ends, and its counters stand still while others go on."""
    spec = with_runs(TRAINING, ScenarioRun("xgmi-link-down", START, END, gpu=GPU))
    one, two = (node_at(t, spec) for t in (START + 100, START + 200))
    before, after = one.state(GPU), two.state(GPU)
    assert [False] + [True] * 6 == list(after.links_up)
    assert before.written[0] == after.written[0]
    assert before.read[0] == after.read[0]
    assert before.written[1] < after.written[1]
    peer = two.devices[GPU].peers[0]
    assert 1 == list(two.state(peer).links_up).count(False)


def test_leak_grows_and_ends_with_its_process() -> None:
    """The floor climbs by hours, in the process that KFD names; a new process is without it."""
    spec = with_runs(ScenarioRun("idle"), ScenarioRun("vram-leak", START, 30_000.0, GPU))
    nodes = [node_at(t, spec) for t in (5000.0, 10_000.0, 20_000.0)]
    used = [node.state(GPU).vram_used for node in nodes]
    held = [node.state(GPU).processes[0].vram for node in nodes]
    assert used[0] < used[1] < used[2]
    assert [u - used[0] for u in used] == [h - held[0] for h in held]
    assert 0.04 / 3600 * nodes[0].devices[GPU].model.vram == pytest.approx(
        (used[2] - used[1]) / 10_000, rel=1e-5
    )
    assert () == node_at(30_001.0, spec).state(GPU).processes


def test_leak_ends_where_the_memory_ends() -> None:
    """After days the process holds all it can get, and no more."""
    spec = with_runs(TRAINING, ScenarioRun("vram-leak", gpu=GPU))
    days = [node_at(day * 86_400.0, spec).state(GPU).vram_used for day in (2, 3)]
    total = node_at(0.0, spec).devices[GPU].model.vram
    assert [pytest.approx(0.98 * total, abs=4096)] * 2 == days


def test_residue_grows_by_jobs_and_stays() -> None:
    """On an idle GPU, memory without an owner rises with every job and outlives the scenario."""
    spec = with_runs(ScenarioRun("idle"), ScenarioRun("vram-residue", 0.0, 3700.0, GPU))
    used = [node_at(t, spec).state(GPU).vram_used for t in (0.0, 1201.0, 1300.0, 2401.0, 9000.0)]
    job = RESIDUE * node_at(0.0, spec).devices[GPU].model.vram
    assert [pytest.approx(n * job, abs=4096) for n in (0, 1, 1, 2, 3)] == [
        u - used[0] for u in used
    ]
    assert [] == node_at(2401.0, spec).processes()


def test_storm_counts_fast_and_retires_pages() -> None:
    """Correctable errors by the thousand, few others; every uncorrectable one costs a page."""
    state = node_at(3700.0, with_runs(ScenarioRun("ecc-storm", 100.0, gpu=GPU))).state(GPU)
    assert (43_200, 72, 18, 18) == (
        state.correctable,
        state.deferred,
        state.uncorrectable,
        state.bad_pages,
    )


def test_throttle_accumulates_its_share() -> None:
    """The residency counters grow by the scenario's share of the ticks, and the clock falls."""
    spec = with_runs(TRAINING, ScenarioRun("throttle", START, END, GPU))
    api = [SimulatedAmdSmi(node_at(t, spec)) for t in (START + 100, START + 200)]
    early, late = (a.amdsmi_get_gpu_metrics_info(Handle(GPU, 0)) for a in api)

    def grown(key: str) -> int:
        after, before = late[key], early[key]
        assert isinstance(after, int)
        assert isinstance(before, int)
        return after - before

    assert pytest.approx(0.45, abs=1e-3) == (
        grown("ppt_residency_acc") / grown("accumulation_counter")
    )
    assert 0 == grown("hbm_thm_residency_acc")
    clocks = [
        a.amdsmi_get_gpu_metrics_info(Handle(number, 0))["current_gfxclk"]
        for a in api
        for number in (GPU, 0)
    ]
    assert all(isinstance(clock, int) for clock in clocks)
    assert clocks[0] < 1400 < 1800 < clocks[1]  # type: ignore[operator]  # numbers


@pytest.mark.parametrize("model", ["MI100", "MI210", "MI250X"])
def test_old_models_throttle_by_a_flag(model: str) -> None:
    """gpu_metrics 1.3 has no residencies, but says that it throttles."""
    changed = _changed(ScenarioRun("throttle", START, END, GPU), START + 60, model)
    assert (GPU, "throttle_status") in changed
    assert (GPU, "ppt_residency_acc") not in changed


def test_lost_gpu_vanishes_and_comes_back() -> None:
    """Its files and calls fail while it is away; then it is back with counters from zero."""
    clock = HandClock(START - 1)
    node = SimulatedNode(with_runs(TRAINING, ScenarioRun("gpu-lost", START, END, GPU)), clock)
    files, api = SimulatedFiles(node), SimulatedAmdSmi(node)
    address, handle = node.devices[GPU].address, Handle(GPU, 0)
    energy = node.state(GPU).energy
    generation = files.read("/sys/class/kfd/kfd/topology/generation_id")
    pids = files.list("/sys/class/kfd/kfd/proc")

    clock.time = START + 5
    assert address not in files.list("/sys/bus/pci/drivers/amdgpu")
    assert address not in files.list("/sys/bus/pci/devices")
    for ask in (files.read, files.list, files.link):
        for path in ("mem_info_vram_used", "hwmon", "driver", ""):
            with pytest.raises(FileNotFoundError):
                ask(f"/sys/bus/pci/devices/{address}/{path}".rstrip("/"))
    with pytest.raises(api.AmdSmiLibraryException) as refusal:
        api.amdsmi_get_gpu_metrics_info(handle)
    assert 6 == refusal.value.get_error_code()
    assert handle not in api.amdsmi_get_processor_handles()
    assert generation != files.read("/sys/class/kfd/kfd/topology/generation_id")
    assert 7 == len(files.list("/sys/class/kfd/kfd/proc"))
    assert 1 == list(node.state(0).links_up).count(False)

    clock.time = END + 5
    assert address in files.list("/sys/bus/pci/drivers/amdgpu")
    assert 0 < node.state(GPU).energy < 5 * 750 < energy
    assert node.state(GPU).written[0] < 5 * 64e9 < node.state(0).written[0]
    table = api.amdsmi_get_gpu_metrics_info(handle)
    assert 5000 == table["accumulation_counter"]
    assert 7 == len(set(pids) & set(files.list("/sys/class/kfd/kfd/proc")))


def test_later_workload_wins() -> None:
    """Of two workloads on a GPU the later in the list runs."""
    node = node_at(
        50.0, with_runs(TRAINING, ScenarioRun("idle", gpu=2), ScenarioRun("inference", gpu=5))
    )
    programs = [node.state(number).condition.program for number in range(8)]
    assert ["train", "train", None, "train", "train", "serve", "train", "train"] == programs


def test_no_scenario_is_an_idle_node() -> None:
    """Nothing runs, nothing moves but time and energy."""
    node = node_at(50.0, SimulationSpec(scenarios=()))
    assert [] == node.processes()
    assert {0.0} == {node.state(number).gfx for number in range(8)}
    assert {140.0} == {node.state(number).power for number in range(8)}
