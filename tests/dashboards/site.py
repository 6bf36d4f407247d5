"""A small fleet with every fault that the simulated node knows, recorded into a real Prometheus.

`python -m tests.dashboards.site FILE INSTANCE …` records some of its nodes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.dashboards.recording import START, STEP, Target, samples
from tests.kernel.packages import debian_tool
from tests.prometheus.site import DEADLINE, REPOSITORY, free_port, get, running

HOUR = 3600.0
LEAD = HOUR
"""Recorded before what is shown, so that no rate begins with the node."""
SPAN = 4 * HOUR
BEGIN, END = START + LEAD, START + LEAD + SPAN


def _at(hours: float) -> float:
    """Simulated seconds at hours of the time shown."""
    return LEAD + hours * HOUR


TRAINING = Target(
    "train-1:9108",
    SimulationSpec(
        seed=1,
        scenarios=(
            ScenarioRun("training"),
            ScenarioRun("hbm-overheat", _at(2), gpu=2),
            ScenarioRun("throttle", _at(2.2), _at(3.5), gpu=2),
            ScenarioRun("ecc-storm", _at(1), gpu=1),
            ScenarioRun("vram-leak", gpu=4),
            ScenarioRun("xgmi-link-down", _at(2), gpu=0),
            ScenarioRun("pcie-degraded", gpu=3),
            ScenarioRun("pcie-replays", _at(1), gpu=6),
        ),
    ),
    dict.fromkeys(range(8), "research/trainer-0/worker"),
    8,
    "east",
)
SERVING = Target(
    "serve-1:9108",
    SimulationSpec(
        seed=2,
        scenarios=(
            ScenarioRun("inference"),
            ScenarioRun("idle", gpu=6),
            ScenarioRun("vram-residue", gpu=6),
            ScenarioRun("gpu-lost", _at(1), _at(1.5), gpu=5),
            ScenarioRun("gpu-lost", _at(3), gpu=7),
        ),
    ),
    {gpu: f"serving/chat-{gpu}/server" for gpu in range(7)},
    8,
    "east",
)
RESERVED = Target(
    "reserve-1:9108",
    SimulationSpec(
        model="MI355X",
        gpus=4,
        seed=3,
        scenarios=(ScenarioRun("idle"), ScenarioRun("vram-leak", _at(0.5), gpu=1)),
    ),
    {0: "research/notebook-0/lab", 1: "research/notebook-1/lab"},
    4,
    "west",
    {'block="asd",version="0x210000e5"': 'block="asd",version="0x210000d1"'},
)
PARTITIONED = Target(
    "parts-1:9108",
    SimulationSpec(model="MI300X-CPX", gpus=1, seed=4, scenarios=(ScenarioRun("inference"),)),
    {},
    1,
    "west",
)
TARGETS = (TRAINING, SERVING, RESERVED, PARTITIONED)
UNREACHABLE = Target("dark-1:9108", SimulationSpec(), {}, 8, "west")
"""Could be reached for the first hour shown only."""


def _record(path: Path, instances: Sequence[str]) -> None:
    with path.open("w") as file:
        for target in TARGETS:
            if target.instance in instances:
                file.writelines(samples(target, LEAD + SPAN))


def _record_apart(path: Path, targets: Sequence[Target]) -> None:
    """Record in a process of its own: coverage of it would cost much and add nothing."""
    command = [sys.executable, "-m", "tests.dashboards.site", str(path)]
    command += [target.instance for target in targets]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=300)


def _unreachable() -> Iterator[str]:
    for number in range(1, int((LEAD + SPAN) / STEP) + 1):
        moment = number * STEP
        yield f"up{{{UNREACHABLE.labels}}} {int(moment < _at(1))} {START + moment:.0f}\n"


@dataclass(frozen=True, slots=True)
class Series:
    """One result: labels, and values by Unix time."""

    labels: Mapping[str, str]
    values: Sequence[tuple[float, float]]


class Prometheus:
    """The running server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def at_once(self, expression: str) -> list[Series]:
        """The answer at the end of the recording."""
        return self._ask("query", {"query": expression, "time": str(END)})

    def over_time(self, expression: str, step: float) -> list[Series]:
        """The answer over the time shown."""
        return self._ask(
            "query_range",
            {"query": expression, "start": str(BEGIN), "end": str(END), "step": str(step)},
        )

    def _ask(self, what: str, parameters: Mapping[str, str]) -> list[Series]:
        status, body = get(self._port, f"/api/v1/{what}?{urlencode(parameters)}")
        assert status == 200, f"{parameters['query']}: {body.decode()}"
        return [
            Series(
                found["metric"],
                [(float(t), float(v)) for t, v in found.get("values", [found.get("value")])],
            )
            for found in json.loads(body)["data"]["result"]
        ]


@contextmanager
def recorded(folder: Path) -> Iterator[Prometheus]:
    """Record the fleet, and serve it by a Prometheus on a loopback port."""
    tools = debian_tool("prometheus") / "usr/bin"
    parts = {folder / "0.om": TARGETS[:1], folder / "1.om": TARGETS[1:]}
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(_record_apart, parts.keys(), parts.values()))
    whole = folder / "samples.om"
    with whole.open("w") as file:
        for part in parts:
            file.write(part.read_text())
            part.unlink()
        file.writelines(_unreachable())
        file.write("# EOF\n")
    subprocess.run(
        [tools / "promtool", "tsdb", "create-blocks-from", "openmetrics", whole, folder / "data"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    whole.unlink()
    config = folder / "prometheus.yml"
    config.write_text("global: {}\n")
    port = free_port()
    command = [str(tools / "prometheus"), "--log.level=warn", f"--config.file={config}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", "--storage.tsdb.retention.time=50y"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with running(command, folder / "prometheus.log"):
        limit = time.monotonic() + DEADLINE
        while get(port, "/-/ready")[0] != 200:
            assert time.monotonic() < limit, (folder / "prometheus.log").read_text()
            time.sleep(0.1)
        yield Prometheus(port)


if __name__ == "__main__":
    _record(Path(sys.argv[1]), sys.argv[2:])
