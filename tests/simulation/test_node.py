"""The node's state: the same for the same question, counters that rise, shares that stay shares."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.simulation.models import MODELS
from exporter.simulation.node import SimulatedNode, State
from exporter.simulation.scenarios import SCENARIOS
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.simulation import HandClock, node_at, with_runs

COUNTERS = (
    "energy",
    "gfx_seconds",
    "memory_seconds",
    "read",
    "written",
    "pcie_bytes",
    "replays",
    "correctable",
    "uncorrectable",
    "deferred",
    "bad_pages",
    "residencies",
    "loaded_for",
)

times = st.integers(0, 40_000_000).map(lambda tenths: tenths / 10)
models = st.sampled_from(sorted(MODELS))
names = st.sampled_from(sorted(set(SCENARIOS) - {"gpu-lost"}))
runs = st.builds(
    ScenarioRun,
    names,
    st.integers(0, 5000).map(float),
    st.none() | st.integers(5001, 100_000).map(float),
    st.none() | st.integers(0, 7),
)
specs = st.builds(
    SimulationSpec,
    models,
    st.just(8),
    st.integers(0, 5),
    st.just(1.0),
    st.lists(runs, max_size=4).map(tuple),
)


def _numbers(state: State) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name in COUNTERS:
        value = getattr(state, name)
        if isinstance(value, dict):
            value = list(value.values())
        found[name] = value if isinstance(value, list) else [value]
    return found


@given(specs, st.lists(times, min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_same_question_same_answer(spec: SimulationSpec, asked: list[float]) -> None:
    """A node that was asked for other moments before says the same as one that wasn't."""
    clock = HandClock()
    node = SimulatedNode(spec, clock)
    for clock.time in asked:
        answers = [node.state(device.number) for device in node.devices]
        fresh = node_at(clock.time, spec)
        assert [fresh.state(device.number) for device in fresh.devices] == answers


@given(specs, times, times)
@settings(deadline=None, max_examples=60)
def test_counters_never_fall(spec: SimulationSpec, one: float, other: float) -> None:
    """Between any two moments every counter of every device stays or rises."""
    early, late = (node_at(moment, spec) for moment in sorted((one, other)))
    for device in early.devices:
        before, after = (_numbers(node.state(device.number)) for node in (early, late))
        for name in COUNTERS:
            for low, high in zip(before[name], after[name], strict=True):
                assert low <= high + 1e-6 * abs(high), name


@given(specs, times)
@settings(deadline=None, max_examples=100)
def test_values_stay_in_range(spec: SimulationSpec, moment: float) -> None:
    """Memory fits, shares are shares, power stays under the cap, sensors under 150 degrees."""
    node = node_at(moment, spec)
    for device in node.devices:
        state, model = node.state(device.number), device.model
        assert 0 <= state.vram_used <= model.vram
        assert sum(p.vram for p in state.processes) <= state.vram_used
        assert 0 == state.vram_used % 4096
        assert 0 <= state.gfx <= 1
        assert 0 <= state.memory <= 1
        assert 0 <= state.condition.xgmi.at(moment) <= 1
        assert 0 <= state.condition.pcie.at(moment) <= 1
        assert all(0 < celsius < 150 for celsius in state.celsius.values())
        if model.power_cap:
            assert 0 <= state.power <= model.power_cap


@given(st.sampled_from(["MI300X", "MI250X", "MI210", "MI100"]), times)
@settings(deadline=None, max_examples=40)
def test_both_ends_of_a_link_agree(model: str, moment: float) -> None:
    """What one GPU has sent over a link, its peer has received."""
    node = node_at(moment, with_runs(ScenarioRun("training"), model=model))
    for device in node.devices:
        state = node.state(device.number)
        for link, peer in enumerate(device.peers):
            back = node.devices[peer].peers.index(device.number)
            assert state.written[link] == node.state(peer).read[back]


def test_ten_years_cost_no_more_than_ten_seconds() -> None:
    """A jump far ahead takes no longer than a small one."""
    clock = HandClock()
    node = SimulatedNode(SimulationSpec(), clock)
    began = time.perf_counter()
    clock.time = 10 * 365 * 86_400.0
    for device in node.devices:
        node.state(device.number)
    assert time.perf_counter() - began < 1


def test_seeds_differ() -> None:
    """Another seed makes another node: ids, boot and phases."""
    one, other = (node_at(100.0, SimulationSpec(seed=seed)) for seed in (0, 1))
    assert one.boot_id != other.boot_id
    assert one.devices[0].unique_id != other.devices[0].unique_id
    assert one.state(0).gfx != other.state(0).gfx


@pytest.mark.parametrize("gpus", [1, 2, 8, 16])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_names_and_numbers_are_unique(model: str, gpus: int) -> None:
    """Addresses, ids, render nodes and KFD nodes belong to one device each."""
    devices = node_at(0.0, SimulationSpec(model=model, gpus=max(gpus, MODELS[model].dies))).devices
    partitions = [partition for device in devices for partition in device.partitions]
    assert len(devices) == len({device.address for device in devices})
    assert len(devices) == len({device.unique_id for device in devices})
    for column in zip(*partitions, strict=True):
        assert len(partitions) == len(set(column))
    for device in devices:
        for peer in device.peers:
            assert device.number in devices[peer].peers


def test_training_looks_like_training() -> None:
    """All GPUs are busy in step and near their cap, warm, full, and exchange data in phases."""
    spec = SimulationSpec()
    samples = [node_at(t / 2, spec) for t in range(2000, 2040)]
    for node in samples:
        busy = [node.state(number).gfx for number in range(8)]
        assert max(busy) - min(busy) < 0.04
        for number in range(8):
            state = node.state(number)
            assert 0.8 < state.power / 750 < 1
            assert 65 < state.celsius["junction"] < 85
            assert 0.8 < state.vram_used / node.devices[number].model.vram < 0.95
    traffic = [node.state(0).condition.xgmi.at(node.clock.now()) for node in samples]
    assert max(traffic) > 3 * min(traffic)


def test_heat_follows_power_slowly() -> None:
    """A GPU that starts to work is still cool after a second, and hot after minutes."""
    spec = with_runs(ScenarioRun("idle"), ScenarioRun("training", 600.0))
    degrees = {t: node_at(t, spec).state(0).celsius["junction"] for t in (599.0, 601.0, 900.0)}
    assert degrees[601.0] - degrees[599.0] < 5
    assert degrees[900.0] - degrees[599.0] > 25


def test_second_die_of_a_package_has_no_power() -> None:
    """Power and energy of an MI250X package stand with its first die, for both."""
    node = node_at(1000.0, SimulationSpec(model="MI250X"))
    first, second = node.state(0), node.state(1)
    assert (0.0, 0.0) == (second.power, second.energy)
    assert 400 < first.power < 560
