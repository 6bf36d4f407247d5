"""The whole chain on loopback ports: exporters, Prometheus, Alertmanager, and who is told.

Time runs faster: simulated nodes at `SPEED`, the rules with every duration divided by it. By hand:
`make stack`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import yaml

from alerts import alertmanager
from alerts.generate import main as generate
from tests.kernel.packages import debian_tool
from tests.prometheus.site import free_port, get, running

SPEED = 60
_READY = 30.0

Told = tuple[str, str, str]
"""The name of an alert, the instance and the GPU; empty where it has none."""


@dataclass(frozen=True, slots=True)
class Node:
    """A simulated node; its scenarios as in the configuration file, in simulated time."""

    name: str
    scenarios: Sequence[object]


@dataclass(slots=True)
class Stack:
    """All of it, running.

    Attributes:
        prometheus, manager: the ports of Prometheus and Alertmanager.
        exporters: the port of each node's exporter, by name.
        fired, resolved: what the webhook was told, in order of the first time.
        started: when the nodes began, on the monotonic clock.
    """

    prometheus: int
    manager: int
    exporters: Mapping[str, int]
    started: float
    fired: dict[Told, Mapping[str, str]] = field(default_factory=dict)
    resolved: dict[Told, None] = field(default_factory=dict)

    def take(self, alerts: Sequence[Mapping[str, Mapping[str, str]]]) -> None:
        """What Alertmanager sends."""
        for alert in alerts:
            labels = alert["labels"]
            key = (labels["alertname"], labels.get("instance", ""), labels.get("gpu", ""))
            if str(alert["status"]) == "firing":
                self.fired.setdefault(key, alert["annotations"])
                self.resolved.pop(key, None)
            else:
                self.resolved[key] = None

    def until(self, minutes: float) -> None:
        """Wait for a moment, in simulated minutes since the beginning."""
        time.sleep(max(0.0, self.started + minutes * 60 / SPEED - time.monotonic()))

    def query(self, expression: str) -> list[dict[str, str]]:
        """The labels of all that Prometheus answers."""
        _, body = get(self.prometheus, f"/api/v1/query?{urlencode({'query': expression})}")
        return [series["metric"] for series in json.loads(body)["data"]["result"]]


@contextmanager
def _webhook(stack: Stack) -> Iterator[int]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stack.take(json.loads(body)["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _alertmanager(port: int) -> str:
    """The example's inhibitions; all messages to the webhook, at once and one by one."""
    config = yaml.safe_load(alertmanager.text())
    config["route"] = {
        "receiver": "test",
        "group_by": ["..."],
        "group_wait": "3s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    url = f"http://127.0.0.1:{port}/"
    config["receivers"] = [{"name": "test", "webhook_configs": [{"url": url}]}]
    return yaml.safe_dump(config)


def _prometheus(folder: Path, targets: Mapping[str, int], alertmanager_port: int) -> str:
    scrapes = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}
        for name, port in targets.items()
    ]
    document = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [f"{folder}/alerts/rules/*.yaml"],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]},
            ]
        },
        "scrape_configs": [{"job_name": "amdgpu", "static_configs": scrapes}],
    }
    return yaml.safe_dump(document)


_TEMPLATES = "usr/share/prometheus/alertmanager"


def _program(folder: Path) -> list[str]:
    """Alertmanager, as it runs from where it was unpacked.

    Debian's reads its templates from a fixed place below /usr, where they are not unless it is
    installed; in a copy of the program the name is made a relative one of the same length.
    """
    root = debian_tool("prometheus-alertmanager").resolve()
    fixed = f"/{_TEMPLATES}".encode()
    copy = folder / "alertmanager.program"
    code = (root / "usr/bin/prometheus-alertmanager").read_bytes()
    copy.write_bytes(code.replace(fixed, b"./" * (len(fixed) // 2)))
    copy.chmod(0o755)
    return ["env", "-C", str(root / _TEMPLATES), str(copy)]


def _wait(port: int) -> None:
    limit = time.monotonic() + _READY
    while get(port, "/-/ready")[0] != 200:
        if time.monotonic() > limit:
            raise AssertionError(f"port {port} is not ready after {_READY:.0f} s")
        time.sleep(0.1)


@contextmanager
def stack(nodes: Sequence[Node], folder: Path) -> Iterator[Stack]:
    """Start everything, and end it all."""
    generate(["--output", str(folder), "--divisor", str(SPEED)])
    ports = {node.name: free_port() for node in nodes}
    manager, prometheus = free_port(), free_port()
    chain = Stack(prometheus, manager, ports, time.monotonic())
    with ExitStack() as started:
        hook = started.enter_context(_webhook(chain))
        (folder / "alertmanager.yml").write_text(_alertmanager(hook))
        (folder / "prometheus.yml").write_text(_prometheus(folder, ports, manager))
        command = [
            *_program(folder),
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{manager}",
            "--cluster.listen-address=",
        ]
        started.enter_context(running(command, folder / "alertmanager.log"))
        _wait(manager)
        for node in nodes:
            simulation = {"speed": SPEED, "gpus": 8, "scenarios": list(node.scenarios)}
            config = folder / f"{node.name}.yaml"
            config.write_text(yaml.safe_dump({"simulation": simulation}))
            command = [sys.executable, "-m", "exporter", "serve", "--sources=simulated"]
            command += [f"--config.file={config}", "--poll.interval=1s"]
            command += [f"--web.listen-address=127.0.0.1:{ports[node.name]}"]
            command += [f"--state.directory={folder}/{node.name}"]
            started.enter_context(running(command, folder / f"{node.name}.log"))
        for port in ports.values():
            _wait(port)
        command = [
            str(debian_tool("prometheus") / "usr/bin/prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{prometheus}",
            "--rules.alert.resend-delay=1s",
            "--log.level=warn",
        ]
        started.enter_context(running(command, folder / "prometheus.log"))
        _wait(prometheus)
        chain.started = time.monotonic()
        yield chain


SHOWN = (
    Node("healthy", ["training"]),
    Node(
        "faulty",
        [
            "training",
            {"name": "hbm-overheat", "gpu": 2, "start": "10m"},
            {"name": "pcie-degraded", "gpu": 3, "start": "20m"},
            {"name": "gpu-lost", "gpu": 7, "start": "30m", "end": "3h"},
        ],
    ),
    Node("idle", ["idle", "vram-residue"]),
)
"""The nodes of `make stack`."""


def main() -> int:
    """Run the stack until Ctrl-C, and print what arrives at the receiver."""
    with (
        tempfile.TemporaryDirectory(prefix="amdgpu-stack-") as folder,
        stack(SHOWN, Path(folder)) as chain,
    ):
        lines = [f"simulated nodes, {SPEED} times as fast as real time; Ctrl-C ends all"]
        lines += [f"  {name:12} http://127.0.0.1:{p}/" for name, p in chain.exporters.items()]
        lines += [f"  prometheus   http://127.0.0.1:{chain.prometheus}/alerts"]
        lines += [f"  alertmanager http://127.0.0.1:{chain.manager}/", "what arrives:"]
        sys.stdout.write("\n".join(lines) + "\n")
        shown: dict[Told, bool] = {}
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for told in list(chain.fired):
                    ended = told in chain.resolved
                    if shown.get(told) != ended:
                        shown[told] = ended
                        state = "resolved" if ended else "firing"
                        sys.stdout.write(f"  {state:8} {' '.join(filter(None, told))}\n")
                sys.stdout.flush()
                time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
