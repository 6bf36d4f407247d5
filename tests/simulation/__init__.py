"""Helpers of the tests of the simulated node."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.simulation.files import SimulatedFiles
from exporter.simulation.node import SimulatedNode
from exporter.simulation.spec import ScenarioRun, SimulationSpec


class HandClock:
    """A clock that a test sets."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        """The time that was set."""
        return self.time


def node_at(time: float, spec: SimulationSpec) -> SimulatedNode:
    """A node whose clock stands still."""
    return SimulatedNode(spec, HandClock(time))


def with_runs(*runs: ScenarioRun, model: str = "MI300X", seed: int = 0) -> SimulationSpec:
    """A node of eight GPUs on which the given scenarios run."""
    return SimulationSpec(model=model, seed=seed, scenarios=runs)


def walk(files: SimulatedFiles, folder: str) -> Iterator[tuple[str, str]]:
    """Every file below a folder with its text; links are left out."""
    for name in files.list(folder or "/"):
        path = f"{folder}/{name}"
        try:
            inside = files.list(path)
        except OSError:
            try:
                yield path, files.read(path)
            except OSError:
                files.link(path)
        else:
            if inside:
                yield from walk(files, path)
