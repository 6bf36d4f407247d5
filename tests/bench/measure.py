"""The processes under measurement, and what /proc says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.kernel.launch import launcher
from tests.kernel.node import Node

SUITE = "sid"
"""The Debian suite whose AMD SMI is measured: 10.1."""
DAEMON = "daemon"
TIMEOUT = 60.0


class Exporter:
    """The daemon and its workers on a simulated node, polling when told to.

    Args:
        node: the simulated node.
        flags: for `amdgpu-exporter serve`.
        notes: a folder for profiles; without one nothing is profiled.
    """

    def __init__(self, node: Node, *flags: str, notes: Path | None = None) -> None:
        self.node = node
        start = launcher(SUITE, node.root)
        told = {
            "command": start.command([]),
            "environment": start.environment(),
            "notes": str(notes or ""),
            "flags": ["--web.listen-address", "127.0.0.1:0", "--log.level", "error", *flags],
        }
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.host", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process = psutil.Process(self._popen.pid)
        self.port: int = self._answer()["port"]

    def __enter__(self) -> Exporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._popen.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.communicate()

    def _answer(self) -> Any:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError("the daemon under measurement has ended")
        return json.loads(line)

    def _tell(self, word: str) -> Any:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{word}\n")
        self._popen.stdin.flush()
        return self._answer()

    def poll(self, times: int = 1, interval: float = 5.0) -> None:
        """Poll, and let an interval pass on the node before each poll."""
        for _ in range(times):
            self.node.advance(interval)
            self._tell("poll")

    def render(self, times: int) -> Mapping[str, Mapping[str, float]]:
        """CPU seconds and bytes of a page, by kind."""
        told: Mapping[str, Mapping[str, float]] = self._tell(f"render {times}")
        return told

    def processes(self) -> dict[str, psutil.Process]:
        """The daemon, and the workers by source."""
        found = {DAEMON: self.process}
        for child in self.process.children():
            arguments = child.cmdline()
            if "tests.bench.worker" in arguments:
                found[arguments[arguments.index("tests.bench.worker") + 1]] = child
        return found

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by process; workers that ended count as "ended"."""
        spent: dict[str, float] = {}
        for name, process in self.processes().items():
            times = process.cpu_times()
            spent[name] = times.user + times.system
            if name == DAEMON:
                spent["ended"] = times.children_user + times.children_system
        return spent

    def memory(self) -> Counter[str]:
        """Proportional bytes by process, and under "anonymous" what belongs to no file.

        Growth shows in the anonymous bytes alone: the others change hands whenever some process,
        of whomever, that has mapped the same files begins or ends.
        """
        held: Counter[str] = Counter()
        for name, process in self.processes().items():
            rollup = smaps_rollup(process.pid)
            held[name] = rollup["Pss"]
            held["anonymous"] += rollup["Anonymous"]
        return held

    def descriptors(self) -> int:
        """How many the daemon has open."""
        return self.process.num_fds()


class Naive:
    """The naive poll in a process of its own; see `tests.bench.naive`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        start = launcher(SUITE, node.root)
        read_fd, write_fd = os.pipe()
        self._popen = subprocess.Popen(
            start.command(["-m", "tests.bench.naive", str(write_fd)]),
            env={**os.environ, **start.environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_fd,),
            text=True,
        )
        os.close(write_fd)
        self._reply = os.fdopen(read_fd)
        self._process = psutil.Process(self._popen.pid)

    def __enter__(self) -> Naive:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._popen.kill()
        self._popen.communicate()
        self._reply.close()

    def tell(self, word: str) -> int:
        """The number of calls made."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{word}\n")
        self._popen.stdin.flush()
        return int(self._reply.readline())

    def poll(self, times: int = 1, interval: float = 5.0, *, links: bool = True) -> int:
        """Poll, and let an interval pass on the node before each poll; the calls of the last."""
        made = 0
        for _ in range(times):
            self.node.advance(interval)
            made = self.tell("poll" if links else "unpaired")
        return made

    def cpu(self) -> float:
        """CPU seconds so far."""
        times = self._process.cpu_times()
        return times.user + times.system


def smaps_rollup(pid: int) -> Mapping[str, int]:
    """What a process has mapped, in bytes, by kind."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size.split()[0]) << 10 for name, size in (row.split(":") for row in rows)}


def opens_of_metrics(node: Node, act: Callable[[], object]) -> int:
    """How often processes on the simulated kernel open a gpu_metrics while `act` runs."""
    before = len(node.opened())
    node.rules("gpu_metrics log")
    try:
        act()
    finally:
        node.rules()
    return len(node.opened()) - before


def samples(page: bytes) -> int:
    """The samples on a page."""
    return sum(1 for line in page.decode().splitlines() if line and not line.startswith("#"))
