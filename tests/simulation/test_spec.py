"""What to simulate: read from plain data, refused with the key's name, passed on as JSON."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.durations import parse_duration
from exporter.simulation.clock import SimulatedClock
from exporter.simulation.models import MODELS
from exporter.simulation.scenarios import SCENARIOS
from exporter.simulation.spec import ScenarioRun, SimulationSpec


def test_defaults() -> None:
    """Nothing given means eight MI300X in training."""
    spec = SimulationSpec.parse({}, parse_duration)
    assert ("MI300X", 8, 0, 1.0) == (spec.model, spec.gpus, spec.seed, spec.speed)
    assert (ScenarioRun("training"),) == spec.scenarios


def test_everything_given() -> None:
    """Names alone and mappings with durations are both scenarios."""
    spec = SimulationSpec.parse(
        {
            "model": "MI250X",
            "gpus": 4,
            "seed": 7,
            "speed": 60,
            "scenarios": [
                "inference",
                {"name": "idle", "end": None, "gpu": None},
                {"name": "throttle", "start": "30s", "end": "2h", "gpu": 3},
            ],
        },
        parse_duration,
    )
    assert (
        SimulationSpec(
            "MI250X",
            4,
            7,
            60.0,
            (
                ScenarioRun("inference"),
                ScenarioRun("idle"),
                ScenarioRun("throttle", 30.0, 7200.0, 3),
            ),
        )
        == spec
    )


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "simulation: not a mapping"),
        ({"modle": "MI300X"}, "simulation: unknown key 'modle'"),
        ({"model": 300}, "model: 300 is not a name"),
        ({"model": "H100"}, "model: 'H100' is none of MI100, MI210"),
        ({"gpus": "8"}, "gpus: '8' is not a whole number"),
        ({"gpus": 0}, "gpus: 0 is not between 1 and 16"),
        ({"gpus": 3, "model": "MI250X"}, "gpus: 3 is odd"),
        ({"seed": True}, "seed: True is not a whole number"),
        ({"speed": "fast"}, "speed: 'fast' is not a number"),
        ({"speed": 0}, "speed: 0.0 is not above 0"),
        ({"speed": float("nan")}, "speed: nan is not above 0"),
        ({"scenarios": "training"}, "scenarios: not a list"),
        ({"scenarios": ["sleep"]}, "scenarios[0]: 'sleep' is none of idle, training"),
        ({"scenarios": [7]}, "scenarios[0]: not a mapping"),
        ({"scenarios": ["idle", {"gpu": 1}]}, "scenarios[1]: the name is missing"),
        ({"scenarios": [{"name": "idle", "gpu": 8}]}, "scenarios[0].gpu: 8 is not between 0 and 7"),
        ({"scenarios": [{"name": "idle", "start": 5}]}, "scenarios[0].start: 5 is no duration"),
        ({"scenarios": [{"name": "idle", "end": "5"}]}, "scenarios[0].end: '5' is no duration"),
        (
            {"scenarios": [{"name": "idle", "start": "1m", "end": "60s"}]},
            "scenarios[0].end: not later than the start",
        ),
    ],
)
def test_refusals_name_the_key(plain: object, message: str) -> None:
    """A wrong value is a ValueError of one line that begins with its place."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the text is compared below
        SimulationSpec.parse(plain, parse_duration)
    assert message == str(refusal.value)[: len(message)]
    assert "\n" not in str(refusal.value)


runs = st.builds(
    ScenarioRun,
    st.sampled_from(sorted(SCENARIOS)),
    st.floats(0, 1e6),
    st.none() | st.floats(1e6 + 1, 1e7),
    st.none() | st.integers(0, 3),
)


@given(
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([4, 8, 16]),
    st.integers(),
    st.floats(0.1, 1e4),
    st.lists(runs, max_size=4).map(tuple),
)
def test_json_round_trip(
    model: str, gpus: int, seed: int, speed: float, scenarios: tuple[ScenarioRun, ...]
) -> None:
    """A specification comes back equal, and keeps when it began."""
    spec = SimulationSpec(model, gpus, seed, speed, scenarios)
    back = SimulationSpec.from_json(spec.to_json())
    assert spec == back
    assert spec.started == back.started
    assert "\n" not in spec.to_json()


@pytest.mark.parametrize("line", ["{}", "[]", '{"scenarios":[{"nme":"idle"}]}', "nonsense"])
def test_from_json_refuses_what_is_none(line: str) -> None:
    """Other JSON, or none, is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  # whichever text
        SimulationSpec.from_json(line)


def test_from_json_checks_values() -> None:
    """A value that `parse` would refuse is refused here too."""
    plain = {**json.loads(SimulationSpec().to_json()), "gpus": 99}
    with pytest.raises(ValueError, match="gpus: 99"):
        SimulationSpec.from_json(json.dumps(plain))


def test_clock_runs_at_its_speed_in_steps() -> None:
    """Simulated seconds pass `speed` times as fast, from `started` on, on a grid."""
    before = time.monotonic()
    now = SimulatedClock(50.0, before - 10).now()
    assert 500.0 <= now <= 50 * (time.monotonic() - before + 10)
    assert pytest.approx(0.0, abs=1e-6) == (now / 5 + 0.5) % 1 - 0.5
    assert SimulatedClock(50.0, before + 60).now() == 0.0
