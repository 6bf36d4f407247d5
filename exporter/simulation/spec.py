"""What to simulate: checked, frozen, and passed to the worker as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from exporter.simulation.models import MODELS
from exporter.simulation.scenarios import SCENARIOS

MOST_GPUS = 16


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One scenario, for how long, and where.

    Attributes:
        name: of the scenario.
        start_seconds, end_seconds: in simulated time since the start; None is for ever.
        gpu: the number of the GPU it happens to. None: a workload runs on all of them, a fault
            strikes one that the seed picks.
    """

    name: str
    start_seconds: float = 0.0
    end_seconds: float | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """The simulated node.

    Attributes:
        model: of its GPUs, a key of `MODELS`.
        gpus: how many of them (of dies, for the MI250X, which has two per package).
        seed: two nodes with the same seed are alike.
        speed: simulated seconds per real second.
        scenarios: what happens; of two workloads on one GPU the later in the list runs.
        started: the real monotonic time of the simulated second 0, so that a worker that is
            restarted goes on where the one before it was.

    Raises:
        ValueError: a value is none that can be simulated; names the key.
    """

    model: str = "MI300X"
    gpus: int = 8
    seed: int = 0
    speed: float = 1.0
    scenarios: tuple[ScenarioRun, ...] = (ScenarioRun("training"),)
    started: float = field(default_factory=time.monotonic, compare=False)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"model: {self.model!r} is none of {', '.join(MODELS)}")
        if not 1 <= self.gpus <= MOST_GPUS:
            raise ValueError(f"gpus: {self.gpus} is not between 1 and {MOST_GPUS}")
        if self.gpus % MODELS[self.model].dies:
            raise ValueError(f"gpus: {self.gpus} is odd, but {self.model} has two dies per package")
        if not 0 < self.speed < math.inf:
            raise ValueError(f"speed: {self.speed} is not above 0")
        for number, run in enumerate(self.scenarios):
            where = f"scenarios[{number}]"
            if run.name not in SCENARIOS:
                raise ValueError(f"{where}: {run.name!r} is none of {', '.join(SCENARIOS)}")
            if not 0 <= run.start_seconds < math.inf:
                raise ValueError(f"{where}.start: {run.start_seconds} is negative")
            if run.end_seconds is not None and run.end_seconds <= run.start_seconds:
                raise ValueError(f"{where}.end: not later than the start")
            if run.gpu is not None and not 0 <= run.gpu < self.gpus:
                raise ValueError(f"{where}.gpu: {run.gpu} is not between 0 and {self.gpus - 1}")

    @classmethod
    def parse(cls, plain: object, duration: Callable[[str], float]) -> SimulationSpec:
        """A specification from plain data, as YAML gives it.

        Args:
            plain: a mapping with the keys model, gpus, seed, speed and scenarios; a scenario is a
                name, or a mapping with the keys name, start, end and gpu.
            duration: turns text such as "2h" into seconds; raises ValueError.

        Raises:
            ValueError: one line that names the key.
        """
        given = _mapping(plain, "simulation", ("model", "gpus", "seed", "speed", "scenarios"))
        arguments: dict[str, object] = {}
        if "model" in given:
            arguments["model"] = _text(given["model"], "model")
        for key in ("gpus", "seed"):
            if key in given:
                arguments[key] = _integer(given[key], key)
        if "speed" in given:
            speed = given["speed"]
            if isinstance(speed, bool) or not isinstance(speed, (int, float)):
                raise ValueError(f"speed: {speed!r:.40} is not a number")
            arguments["speed"] = float(speed)
        if "scenarios" in given:
            listed = given["scenarios"]
            if not isinstance(listed, (list, tuple)):
                raise ValueError("scenarios: not a list")
            arguments["scenarios"] = tuple(
                _scenario(entry, f"scenarios[{number}]", duration)
                for number, entry in enumerate(listed)
            )
        return cls(**arguments)  # type: ignore[arg-type]  # each was checked above

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> SimulationSpec:
        """What `to_json` wrote.

        Raises:
            ValueError: it was not written by `to_json`.
        """
        try:
            plain = json.loads(line)
            runs = tuple(ScenarioRun(**run) for run in plain.pop("scenarios"))
            return cls(**plain, scenarios=runs)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no specification of a simulation: {error}") from error


def _mapping(value: object, where: str, keys: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: not a mapping")
    for key in value:
        if key not in keys:
            raise ValueError(f"{where}: unknown key {key!r:.40}; known are {', '.join(keys)}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: {value!r:.40} is not a name")
    return value


def _integer(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{where}: {value!r:.40} is not a whole number")
    return value


def _scenario(entry: object, where: str, duration: Callable[[str], float]) -> ScenarioRun:
    if isinstance(entry, str):
        return ScenarioRun(entry)
    given = _mapping(entry, where, ("name", "start", "end", "gpu"))
    if "name" not in given:
        raise ValueError(f"{where}: the name is missing")
    seconds: dict[str, float] = {}
    for key in ("start", "end"):
        value = given.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"{where}.{key}: {value!r:.40} is no duration such as 30s")
        try:
            seconds[key] = duration(value)
        except ValueError as error:
            raise ValueError(f"{where}.{key}: {error}") from error
    gpu = given.get("gpu")
    return ScenarioRun(
        _text(given["name"], f"{where}.name"),
        seconds.get("start", 0.0),
        seconds.get("end"),
        None if gpu is None else _integer(gpu, f"{where}.gpu"),
    )
