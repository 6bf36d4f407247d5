"""Runs the command, and watches it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds for which anything is waited for; the machine may be busy."""


def environment(**changes: str) -> dict[str, str]:
    """The environment of a command: that of the tests, without what would change its settings."""
    kept = {name: value for name, value in os.environ.items() if name != "STATE_DIRECTORY"}
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


def command(*arguments: str) -> list[str]:
    """The command line, run by the interpreter of the tests."""
    return [sys.executable, "-m", "exporter", *arguments]


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str


def run(*arguments: str, **changes: str) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request got."""

    status: int
    type: str
    body: str


@dataclass
class Serving:
    """A daemon that runs, and its log so far."""

    process: subprocess.Popen[bytes]
    log_path: Path
    addresses: list[tuple[str, int]] = field(default_factory=list)

    def log(self) -> str:
        """All that it logged."""
        return self.log_path.read_text()

    def lines(self, *parts: str) -> list[str]:
        """The lines of the log that have all these parts."""
        return [line for line in self.log().splitlines() if all(part in line for part in parts)]

    def logged(self, *parts: str, times: int = 1) -> str:
        """Wait for a line of the log; the last such line."""
        eventually(
            lambda: len(self.lines(*parts)) >= times or self.process.poll() is not None,
            f"{parts} in {self.log()}",
        )
        assert self.lines(*parts), self.log()
        return self.lines(*parts)[-1]

    def ask(self, path: str = "/metrics", method: str = "GET", address: int = 0) -> Reply:
        """Make one request, to one of the addresses."""
        client = HTTPConnection(*self.addresses[address], timeout=PATIENCE)
        try:
            client.request(method, path)
            response = client.getresponse()
            content_type = response.headers.get("Content-Type", "")
            return Reply(response.status, content_type, response.read().decode())
        finally:
            client.close()

    def series(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every series of the page."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(self.ask().body)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """One series of the page, None where there is none."""
        return self.series().get((name, tuple(sorted(labels.items()))))

    def listening(self, addresses: int) -> bool:
        """Whether it listens on so many addresses; learns which these are."""
        assert self.process.poll() is None, self.log()
        connections = psutil.Process(self.process.pid).net_connections("tcp")
        self.addresses = sorted(
            (c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN
        )
        return len(self.addresses) == addresses

    def ready(self) -> None:
        """Wait for the first poll."""
        eventually(lambda: self.ask("/-/ready").status == 200, "the first poll")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the daemon alone."""
        self.process.send_signal(number)

    def workers(self) -> list[psutil.Process]:
        """Its workers."""
        return psutil.Process(self.process.pid).children()

    def ended(self) -> int:
        """Wait for its end; the exit status."""
        return self.process.wait(PATIENCE)


@contextmanager
def serving(
    directory: Path,
    *arguments: str,
    addresses: Sequence[str] = ("127.0.0.1:0",),
    name: str = "serve",
    wait: bool = True,
    changes: Mapping[str, str] | None = None,
) -> Iterator[Serving]:
    """A daemon on free ports while the block runs; then it is told to end.

    Args:
        directory: where its log goes.
        arguments: flags, and the command.
        addresses: to listen on.
        name: of its log.
        wait: for the first poll.
        changes: of its environment.
    """
    log_path = directory / f"{name}.log"
    listen = [f"--web.listen-address={address}" for address in addresses]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command(*arguments, *listen),
            cwd=ROOT,
            env=environment(**(changes or {})),
            stdout=log,
            stderr=log,
        )
    daemon = Serving(process, log_path)
    try:
        eventually(lambda: daemon.listening(len(addresses)), f"it listens: {daemon.log()}")
        if wait:
            daemon.ready()
        yield daemon
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def gone(processes: Sequence[psutil.Process]) -> bool:
    """Whether none of these processes runs any more."""
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


def one_line(done: Done) -> str:
    """What a refused command says: exactly one line, no traceback, exit status 2."""
    assert 2 == done.status, done
    assert "" == done.out
    lines = done.err.splitlines()
    assert 1 == len(lines), done.err
    assert lines[0].startswith("amdgpu-exporter: ")
    assert "Traceback" not in done.err
    return lines[0].removeprefix("amdgpu-exporter: ")


def families(text: str) -> Iterable[Family]:
    """The families of a page in the text format."""
    read: Any = text_string_to_metric_families  # it has no types
    found: Iterable[Family] = read(text)
    return found


def document(text: str) -> Any:
    """JSON as the standard has it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)
