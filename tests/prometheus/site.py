"""A site of three: a simulated node whose time runs, the daemon on it, and a Prometheus."""

from __future__ import annotations

import http.client
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from tests.kernel.node import Node
from tests.kernel.packages import debian_tool

REPOSITORY = Path(__file__).parents[2]
DEADLINE = 90.0
"""Seconds for anything that the three take one or two to do."""
TICK = 0.1


class RunningNode:
    """A node whose hardware clocks keep pace with real time, and whose links carry traffic.

    Attributes:
        kilobytes: KB per second that each link of a GPU receives, by GPU.
        frozen: GPUs whose clocks stand still and whose table is left as it is.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.kilobytes = [0] * len(node.gpus)
        self.frozen: set[int] = set()
        self._now = time.monotonic()

    def tick(self) -> None:
        """Let the time pass that has passed; counters and clocks move in one write."""
        now = time.monotonic()
        elapsed, self._now = now - self._now, now
        for gpu, rate in enumerate(self.kilobytes):
            state = self.node.state[gpu]
            counters = state["xgmi_read_data_acc"]
            assert not isinstance(counters, int)
            state["xgmi_read_data_acc"] = [count + round(rate * elapsed) for count in counters]
        self.node.advance(elapsed, {*range(len(self.node.gpus))} - self.frozen)


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body; status 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours, ended by its own id; what it writes goes to a file."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


class Site:
    """All three, running.

    Attributes:
        hardware: the node.
        daemon: the process of the exporter.
    """

    def __init__(
        self, hardware: RunningNode, daemon: subprocess.Popen[bytes], port: int, log: Path
    ) -> None:
        self.hardware = hardware
        self.daemon = daemon
        self._port = port
        self._log = log

    def query(self, expression: str) -> dict[str, float]:
        """What Prometheus answers now: the labels of each series as text, and its value."""
        status, body = get(self._port, f"/api/v1/query?{urlencode({'query': expression})}")
        if status != 200:
            return {"no answer": float(status)}
        found = json.loads(body)["data"]["result"]
        return {_key(series["metric"]): float(series["value"][1]) for series in found}

    def until(self, expression: str, expected: Mapping[str, float]) -> None:
        """Wait until Prometheus answers so, while the node's time runs; fail at the deadline."""
        found: dict[str, float] = {}

        def answers() -> bool:
            nonlocal found
            found = self.query(expression)
            return found.keys() == expected.keys() and all(
                math.isclose(found[key], expected[key], rel_tol=1e-6) for key in expected
            )

        if not wait(self.hardware, answers):
            words = self._log.read_text()[-2000:]
            raise AssertionError(f"{expression} is {found}, not {dict(expected)}; log: {words}")


def _key(labels: Mapping[str, str]) -> str:
    """The labels that tell series apart, without those that Prometheus adds."""
    own = {"__name__", "instance", "job", "pci_address", "peer"}
    return ",".join(f"{name}={labels[name]}" for name in sorted({*labels} - own))


def wait(hardware: RunningNode, condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true before the deadline; the node's time runs meanwhile."""
    limit = time.monotonic() + DEADLINE
    while time.monotonic() < limit:
        hardware.tick()
        if condition():
            return True
        time.sleep(TICK)
    return False


@contextmanager
def site(node: Node, suite: str, sources: str, folder: Path) -> Iterator[Site]:
    """Start the daemon and a Prometheus that scrapes it every second; end both."""
    hardware = RunningNode(node)
    exporter_port, prometheus_port = free_port(), free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n"
        "  - job_name: amdgpu\n"
        "    scrape_interval: 1s\n"
        "    scrape_timeout: 1s\n"
        "    static_configs:\n"
        f"      - targets: ['127.0.0.1:{exporter_port}']\n"
    )
    serve = [sys.executable, "-m", "tests.prometheus.serve", suite, str(node.root), "serve"]
    serve += [f"--web.listen-address=127.0.0.1:{exporter_port}", "--poll.interval=1s"]
    serve += [f"--sources={sources}", f"--state.directory={folder / 'state'}"]
    prometheus = [str(debian_tool("prometheus") / "usr/bin/prometheus"), "--log.level=warn"]
    prometheus += [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    prometheus += [f"--web.listen-address=127.0.0.1:{prometheus_port}"]
    log = folder / "daemon.log"
    with running(serve, log) as daemon, running(prometheus, folder / "prometheus.log"):
        started = Site(hardware, daemon, prometheus_port, log)
        assert wait(hardware, lambda: get(exporter_port, "/-/ready")[0] == 200), log.read_text()
        assert wait(hardware, lambda: get(prometheus_port, "/-/ready")[0] == 200)
        yield started
