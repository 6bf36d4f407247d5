"""What the rules cost: `python -m tests.alerts.cost [NODES]`.

An hour of a simulated training node of eight GPUs, as that many nodes, in a real Prometheus; the
time that it takes for each group is shown, and what it would be for 1,000 nodes if it grows with
their number. Samples are a minute apart: at a scrape every 15 s, ranges hold four times as many.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import yaml

from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.alerts.story import RULES, promtool
from tests.dashboards.recording import START, Target, samples
from tests.kernel.packages import debian_tool
from tests.prometheus.site import free_port, get, running

SECONDS = 3600
GPUS = 8
FLEET = 1000
SETTLE = 45


def _record(path: Path, nodes: int) -> int:
    """Write the hour that ends now; how many series a node has."""
    spec = SimulationSpec(gpus=GPUS, scenarios=(ScenarioRun("training"),))
    shift = int(time.time()) - SECONDS - int(START)
    series = set()
    with path.open("w") as file:
        for line in samples(Target("NODE", spec, {}, GPUS, "fleet"), SECONDS):
            head, _, moment = line.rstrip("\n").rpartition(" ")
            series.add(head.rpartition(" ")[0])
            for number in range(nodes):
                file.write(f"{head.replace('NODE', f'n{number}')} {int(moment) + shift}\n")
        file.write("# EOF\n")
    return len(series)


def main(nodes: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        per_node = _record(folder / "hour.om", nodes)
        status, output = promtool(
            "tsdb", "create-blocks-from", "openmetrics", str(folder / "hour.om"), str(folder / "d")
        )
        assert 0 == status, output
        (folder / "hour.om").unlink()
        config = {
            "global": {"evaluation_interval": "15s"},
            "rule_files": [str(path) for path in RULES.glob("*.yaml")],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = free_port()
        command = [
            str(debian_tool("prometheus") / "usr/bin/prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/d",
            "--storage.tsdb.retention.time=1y",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with running(command, folder / "log"):
            time.sleep(SETTLE)
            groups = json.loads(get(port, "/api/v1/rules")[1])["data"]["groups"]
    total = 0.0
    for group in groups:
        total += group["evaluationTime"]
        _say(f"{group['name']:20} {group['evaluationTime'] * 1000:8.1f} ms")
    _say(f"{nodes} nodes, {per_node} series each, {per_node / GPUS:.0f} per GPU: {total:.3f} s")
    _say(f"{FLEET} nodes, if it grows with their number: {total * FLEET / nodes:.1f} s")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
