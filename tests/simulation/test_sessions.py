"""The real sessions and every reader of every collector run over the simulated node."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from exporter.collectors import COLLECTORS
from exporter.simulation.models import MODELS
from exporter.simulation.scenarios import SCENARIOS
from exporter.simulation.source import open_sessions
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from exporter.sources.session import Session
from exporter.values import (
    ERROR,
    IMPLAUSIBLE,
    NO_ANSWER,
    STALE,
    Absent,
    FieldValue,
    from_wire,
    to_wire,
)
from tests.simulation import HandClock

Key = tuple[str, str, str, str | None, str]


def _poll(sessions: dict[str, Session], now: float) -> Iterator[tuple[Key, FieldValue]]:
    """Everything that all readers of all collectors tell in one poll."""
    for session in sessions.values():
        session.begin(now)
    for collector in COLLECTORS:
        for reader in collector.readers:
            if reader.source not in sessions:
                continue
            session = sessions[reader.source]
            for address, _ in session.devices():
                for view in session.views(address, per_partition=reader.per_partition):
                    for field, value in reader.read(view).items():
                        yield (collector.name, reader.source, address, view.partition, field), value


def _sessions(spec: SimulationSpec, clock: HandClock) -> dict[str, Session]:
    amdsmi, sysfs = open_sessions(spec, clock)
    return {"amdsmi": amdsmi, "sysfs": sysfs}


def _absences(value: FieldValue) -> list[Absent]:
    if isinstance(value, Absent):
        return [value]
    return [v for v in value.values() if isinstance(v, Absent)] if isinstance(value, dict) else []


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_reader_tells_values_or_reasons(model: str, scenario: str) -> None:
    """No reader raises, no value is implausible or stale, and all of it fits through the pipe."""
    spec = SimulationSpec(
        model=model, gpus=2, scenarios=(ScenarioRun("training"), ScenarioRun(scenario, 10.0))
    )
    clock = HandClock()
    sessions = _sessions(spec, clock)
    for clock.time in (0.0, 5.0, 15.0, 3600.0):
        if any(session.changed() for session in sessions.values()):
            sessions = _sessions(spec, clock)
        for key, value in _poll(sessions, clock.time):
            assert value == from_wire(to_wire(value)), key
            faults = [
                a for a in _absences(value) if a.reason in (ERROR, IMPLAUSIBLE, STALE, NO_ANSWER)
            ]
            assert [] == faults, key


@pytest.mark.parametrize("model", sorted(MODELS))
def test_sessions_list_the_devices(model: str) -> None:
    """Both list one device per address, none of them asleep, and which version they are."""
    amdsmi, sysfs = open_sessions(SimulationSpec(model=model), HandClock())
    assert sorted(amdsmi.devices()[i][0] for i in range(len(amdsmi.devices()))) == [
        address for address, _ in sysfs.devices()
    ]
    expected = 9 if MODELS[model].integrated else 8
    assert expected == len(amdsmi.devices()) == amdsmi.node()["devices_amdsmi"]
    assert "27.1.0 (simulated)" == amdsmi.node()["amdsmi_version"]
    address = amdsmi.devices()[-1][0]
    assert not sysfs.suspended(address)
    assert MODELS[model].partitions == len(amdsmi.views(address, per_partition=True))


def test_sessions_notice_a_lost_gpu() -> None:
    """Both say that the devices changed, and new ones go on without it at the same time."""
    clock = HandClock()
    spec = SimulationSpec(scenarios=(ScenarioRun("gpu-lost", 60.0, 120.0, 3),))
    sessions = _sessions(spec, clock)
    assert [False, False] == [session.changed() for session in sessions.values()]
    list(_poll(sessions, 0.0))  # what was read once is a fault when it fails
    clock.time = 61.0
    assert [True, True] == [session.changed() for session in sessions.values()]
    away = [
        reading
        for key, reading in _poll(sessions, 61.0)
        if key[:3] == ("power", "amdsmi", "0000:41:00.0")
    ]
    assert [ERROR, ERROR, ERROR] == [a.reason for value in away for a in _absences(value)]
    sessions = _sessions(spec, clock)
    assert [7, 7] == [len(session.devices()) for session in sessions.values()]
    clock.time = 121.0
    assert [True, True] == [session.changed() for session in sessions.values()]
    assert [8, 8] == [len(session.devices()) for session in _sessions(spec, clock).values()]


def test_default_clock_belongs_to_the_specification() -> None:
    """Sessions opened later, even by another process, show the same time."""
    spec = SimulationSpec(speed=1000.0, started=time.monotonic() - 100)
    amdsmi, _ = open_sessions(SimulationSpec.from_json(spec.to_json()))
    view = amdsmi.views("0000:05:00.0", per_partition=False)[0]
    counter = view.metric("system_clock_counter")
    assert isinstance(counter, int)
    assert 100_000 <= counter / 1e9 - 3 * 86_400 < 110_000
