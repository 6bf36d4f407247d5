"""A simulated day on which nothing is wrong raises nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.alerts.story import RULES, promtool
from tests.dashboards.recording import START, STEP, Target, samples

HOURS = 24
ALWAYS = ("AmdGpuWatchdog", "AmdGpuSimulated")
_SAMPLE = re.compile(r"(\w+\{.*\}) (\S+) (\d+)\n")


def _series(workload: str) -> list[dict[str, str]]:
    """Every series of a node of one GPU, minute by minute, with promtool's time from 0 on."""
    spec = SimulationSpec(gpus=1, scenarios=(ScenarioRun(workload),))
    target = Target("node", spec, {}, 1, "day")
    minutes = int(HOURS * 3600 / STEP)
    found: dict[str, list[str]] = {}
    for line in samples(target, HOURS * 3600):
        told = _SAMPLE.fullmatch(line)
        assert told is not None, line
        name, value, moment = told.groups()
        if name.startswith("amdgpu_exporter_last_poll_timestamp_seconds"):
            value = f"{float(value) - START:.0f}"
        values = found.setdefault(name, ["_"] * (minutes + 1))
        values[round((float(moment) - START) / STEP)] = value
    return [{"series": name, "values": " ".join(values)} for name, values in found.items()]


@pytest.mark.parametrize("workload", ["training", "inference", "idle"])
def test_a_day_raises_nothing(workload: str, tmp_path: Path) -> None:
    """All rules over every minute of it; only the watchdog fires, and that it is simulated."""
    firing = f'ALERTS{{alertstate="firing",alertname!~"{"|".join(ALWAYS)}"}}'
    last = int(HOURS * 60)
    document = {
        "rule_files": [str(path) for path in sorted(RULES.glob("*.yaml"))],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": _series(workload),
                "promql_expr_test": [
                    {
                        "expr": f"count by (alertname) (count_over_time({firing}[{HOURS}h]))",
                        "eval_time": f"{last}m",
                        "exp_samples": [],
                    },
                    {
                        "expr": "count(count_over_time("
                        f'ALERTS{{alertname="AmdGpuSimulated"}}[{HOURS}h]))',
                        "eval_time": f"{last}m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                ],
            }
        ],
    }
    path = tmp_path / "day.yaml"
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, width=10_000_000))
    status, output = promtool("test", "rules", str(path))
    assert (0, "SUCCESS") == (status, output.strip().splitlines()[-1].strip()), output[-3000:]
