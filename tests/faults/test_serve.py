"""The whole daemon, as it is started on a node, while the library fails."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from tests.faults.harness import AT_ONCE, PATIENCE, Page, measured, true
from tests.kernel.node import Node

SICK = 1


@dataclass
class Served:
    """A daemon that serves."""

    process: subprocess.Popen[bytes]
    log: Path
    address: str
    slowest: float = 0.0

    def scrape(self) -> Page | None:
        """The page, at once; None while there is none yet."""
        begin = time.monotonic()
        connection = HTTPConnection(self.address, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.slowest = max(self.slowest, time.monotonic() - begin)
        assert answer.status in (200, 503)
        return Page.parse(text) if answer.status == 200 else None

    def until(self, condition: Callable[[Page], object]) -> Page:
        """Scrape until the page is as it shall be."""
        limit = time.monotonic() + PATIENCE
        while True:
            page = self.scrape()
            if page is not None and condition(page):
                return page
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.05)

    def told(self) -> list[str]:
        """The lines of the log about faults, in short."""
        pattern = re.compile(r'event="?([a-z ]+)"?.* (?:pci_address|source)=(\S+).* fault=(\w+)')
        return [
            f"{found[3]}: {found[1].strip()} {found[2]}"
            for line in self.log.read_text().splitlines()
            if (found := pattern.search(line)) is not None
        ]


@contextmanager
def served(node: Node, folder: Path, suite: str = "sid") -> Iterator[Served]:
    """Serve a node; in the end the daemon stops by itself, and its workers with it."""
    log = folder / "log"
    command = [sys.executable, "-m", "tests.faults.serve", suite, str(node.root), "serve"]
    command += ["--web.listen-address=127.0.0.1:0", "--poll.interval=1s"]
    command += [f"--state.directory={folder}"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdin=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + PATIENCE
        while (found := re.search(r"listen=.*?(127\.0\.0\.1:\d+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.05)
        served = Served(process, log, found[1])
        yield served
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE)
        assert [] == [worker for worker in workers if worker.is_running()]
        assert served.slowest < AT_ONCE
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("action", "reason"), [("delay inf", "hang"), ("segv", "crash"), ("exit 3", "crash")]
)
def test_one_gpu_fails(action: str, reason: str, two: Node, tmp_path: Path) -> None:
    """Scrapes go on being answered at once, and the other GPU is on every page of them."""
    with served(two, tmp_path) as daemon:
        daemon.until(lambda page: page.up() == [0, 1] and all(measured(page, SICK).values()))
        two.rules(f"*/{two.gpus[SICK].bdf}/gpu_metrics {action}")

        def sick(page: Page) -> bool:
            assert 0 in page.up()
            assert measured(page, 0)["vram"] == true(two, 0)["vram"]
            two.advance(0.05)
            return page.up() == [0]

        page = daemon.until(sick)
        assert 1 <= page.restarts("amdsmi")[reason]
        two.rules()

        def well(page: Page) -> bool:
            two.advance(0.05)
            return page.up() == [0, 1]

        daemon.until(well)
        about = f"device is down {two.gpus[SICK].bdf}"
        daemon.until(lambda _: len(daemon.told()) > 1)
        assert [f"started: {about}", f"ended: {about}"] == [
            line for line in daemon.told() if "device" in line
        ]


def test_start_with_a_library_that_hangs(two: Node, tmp_path: Path) -> None:
    """The first page comes with what the other sources have; then stopping is not held up."""
    two.rules("dev/dri/renderD128 delay inf")
    with served(two, tmp_path) as daemon:
        assert daemon.scrape() is None
        page = daemon.until(lambda page: page.up() == [0, 1])
        assert 0.0 == page.one("amdgpu_exporter_source_up", source="amdsmi")
        assert true(two, 1)["vram"] == measured(page, 1)["vram"]


def test_kill_of_every_worker(two: Node, tmp_path: Path) -> None:
    """Somebody kills all workers: they are back within seconds, and no zombie is left."""
    with served(two, tmp_path) as daemon:
        daemon.until(lambda page: page.up() == [0, 1])
        own = psutil.Process(daemon.process.pid)
        for worker in own.children():
            assert (1, 1) == worker.rlimit(psutil.RLIMIT_CORE)
            worker.kill()
        page = daemon.until(lambda page: page.restarts("amdsmi"))
        assert {"crash": 1} == page.restarts("amdsmi")
        daemon.until(
            lambda page: (
                page.up() == [0, 1]
                and page.one("amdgpu_exporter_source_up", source="amdsmi")
                and page.one("amdgpu_exporter_source_up", source="sysfs")
            )
        )
        zombie = psutil.STATUS_ZOMBIE
        daemon.until(lambda _: zombie not in [worker.status() for worker in own.children()])


def test_stopped_worker(two: Node, tmp_path: Path) -> None:
    """A worker that stands still, as under a debugger, is replaced."""
    with served(two, tmp_path) as daemon:
        daemon.until(lambda page: page.up() == [0, 1])
        for worker in psutil.Process(daemon.process.pid).children():
            worker.suspend()
        page = daemon.until(lambda page: page.restarts("sysfs"))
        assert {"hang": 1} == page.restarts("sysfs")
        daemon.until(lambda page: page.up() == [0, 1] and page.restarts("amdsmi"))
