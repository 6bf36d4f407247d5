"""Reloading the settings while the daemon runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .command import Serving, document, eventually, serving

BASE = """
sources: simulated
simulation: {gpus: 2, speed: 20}
web: {enable-lifecycle: true}
poll: {interval: 1s}
"""
SUCCESSFUL = "amdgpu_exporter_config_last_reload_successful"
SUCCESS_TIME = "amdgpu_exporter_config_last_reload_success_timestamp_seconds"
LAST_POLL = "amdgpu_exporter_last_poll_timestamp_seconds"


@dataclass
class Reloading:
    """A daemon and its file of settings."""

    daemon: Serving
    path: Path
    reloads: int = 0

    def hang_up(self, text: str) -> None:
        """Change the file, send SIGHUP, and wait for what the log says of it."""
        self.path.write_text(text)
        self.reloads += 1
        self.daemon.send(signal.SIGHUP)
        self.daemon.logged("configuration", "reloaded", times=self.reloads)

    def post(self, text: str) -> tuple[int, str]:
        """Change the file and reload over HTTP."""
        self.path.write_text(text)
        self.reloads += 1
        reply = self.daemon.ask("/-/reload", "POST")
        return reply.status, reply.body

    def names(self) -> set[str]:
        """The metrics on the page."""
        return {name for name, _ in self.daemon.series()}


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    """A daemon over two simulated GPUs that polls every second."""
    path = tmp_path / "x.yml"
    path.write_text(BASE)
    with serving(tmp_path, f"--config.file={path}") as daemon:
        yield Reloading(daemon, path)


def test_hang_up(reloading: Reloading) -> None:
    """SIGHUP reads the file again; collectors, limits and expectations change while it runs."""
    daemon = reloading.daemon
    before = daemon.value(SUCCESS_TIME) or 0

    assert "amdgpu_power_watts" in reloading.names()
    assert 1.0 == daemon.value(SUCCESSFUL)

    reloading.hang_up(BASE + "collector: {power: false, xcc: true}\nexpected-gpus: 3\n")
    eventually(lambda: daemon.value("amdgpu_devices", view="expected") == 3.0, "expected-gpus")

    assert "amdgpu_power_watts" not in reloading.names()
    assert "amdgpu_xcc_activity_ratio" in reloading.names()
    assert before < (daemon.value(SUCCESS_TIME) or 0)
    assert daemon.logged("fewer GPUs answer than expected", "answering=2", "expected=3")
    assert 1 == len(daemon.workers())


def test_log_level(reloading: Reloading) -> None:
    """It changes at once, both ways."""
    assert (200, "Reloaded.\n") == reloading.post(BASE + "log: {level: error}\n")
    assert (200, "Reloaded.\n") == reloading.post(BASE + "log: {level: error}\n")
    assert [] == reloading.daemon.lines("configuration reloaded")

    reloading.post(BASE)

    assert reloading.daemon.logged("configuration reloaded")


def test_limits(tmp_path: Path) -> None:
    """The fallback limits stand for the sensors whose device gives none, here an integrated GPU."""
    path = tmp_path / "x.yml"
    path.write_text(BASE.replace("gpus: 2", "gpus: 2, model: MI210-iGPU"))
    with serving(tmp_path, f"--config.file={path}") as daemon:
        reloading = Reloading(daemon, path)

        def limits() -> list[tuple[str, str, float]]:
            return [
                (dict(labels)["sensor"], dict(labels)["limit"], value)
                for (name, labels), value in daemon.series().items()
                if name == "amdgpu_temperature_limit_celsius"
                and "configured" in dict(labels)["limit"]
            ]

        assert [] == limits()

        reloading.post(path.read_text() + "temperature: {edge: {warning: 80, critical: 90}}\n")
        expected = [("edge", "configured_warning", 80.0), ("edge", "configured_critical", 90.0)]
        eventually(lambda: expected == limits(), "the new limits")


def test_a_bad_file(reloading: Reloading) -> None:
    """The running settings stay; the log, the answer and a metric say so until it is good."""
    daemon = reloading.daemon
    bad = BASE + "collector: {power: false}\nlog: {level: loud}\n"
    status, body = reloading.post(bad)
    line = len(BASE.splitlines()) + 2

    assert 500 == status
    assert f"{reloading.path}:{line}:7: log.level: expected debug or info" in body
    assert 1 == len(body.splitlines())
    assert f":{line}:7: log.level" in daemon.logged(
        "level=error", "configuration not reloaded, the running settings stay"
    )
    eventually(lambda: daemon.value(SUCCESSFUL) == 0.0, "the failure is a metric")
    assert "amdgpu_power_watts" in reloading.names()

    before = daemon.value(SUCCESS_TIME) or 0
    reloading.hang_up(bad)

    assert 2 == len(daemon.lines("configuration not reloaded"))

    reloading.path.unlink()
    reloading.daemon.send(signal.SIGHUP)
    daemon.logged("configuration not reloaded", "No such file")
    reloading.hang_up(BASE)
    eventually(lambda: daemon.value(SUCCESSFUL) == 1.0, "the success is a metric")

    assert before < (daemon.value(SUCCESS_TIME) or 0)


def test_what_needs_a_restart(reloading: Reloading) -> None:
    """It is said at each reload as long as it differs, and the running value stays in force."""
    daemon = reloading.daemon
    changed = BASE.replace("web: {", "web: {telemetry-path: /gpu, ")
    for times in (1, 2):
        reloading.post(changed)
        daemon.logged("needs a restart", "setting=web.telemetry-path", times=times)

    assert "href='/metrics'" in daemon.ask("/").body
    assert 200 == daemon.ask("/metrics").status

    reloading.post(BASE)

    assert 2 == len(daemon.lines("needs a restart"))


def test_nothing_is_lost(reloading: Reloading) -> None:
    """Sums over time go on where they were, and so do the counts of what was rejected."""
    daemon = reloading.daemon
    name = "amdgpu_gfx_active_seconds_total"

    def sums() -> list[float]:
        return [value for key, value in sorted(daemon.series().items()) if key[0] == name]

    def rejected() -> float:
        return sum(
            value
            for key, value in daemon.series().items()
            if key[0] == "amdgpu_exporter_rejected_values_total"
            and ("collector", "temperature") in key[1]
        )

    eventually(lambda: min(sums(), default=0) > 20, "some activity")
    before, rejected_before = sums(), rejected()
    reloading.hang_up(BASE.replace("1s", "2s") + "collector: {power: false}\n")
    eventually(lambda: daemon.value("amdgpu_exporter_poll_interval_seconds") == 2.0, "the interval")

    assert all(old <= new for old, new in zip(before, sums(), strict=True))
    assert rejected_before <= rejected()


def test_a_shorter_interval(tmp_path: Path) -> None:
    """It holds at once, not after the long one."""
    path = tmp_path / "x.yml"
    path.write_text(BASE.replace("1s", "1h"))
    with serving(tmp_path, f"--config.file={path}") as daemon:
        reloading = Reloading(daemon, path)
        begin = time.time()
        reloading.hang_up(BASE)
        eventually(lambda: (daemon.value(LAST_POLL) or 0) > begin + 2, "polls every second")

        assert 1.0 == daemon.value("amdgpu_exporter_poll_interval_seconds")


def test_many_reloads_at_once(reloading: Reloading) -> None:
    """Signals that interrupt each other neither block the daemon nor end it."""
    for _ in range(200):
        reloading.daemon.send(signal.SIGHUP)
    reloading.daemon.logged("configuration reloaded")

    assert 200 == reloading.daemon.ask("/-/reload", "POST").status

    reloading.daemon.send(signal.SIGTERM)

    assert 0 == reloading.daemon.ended()
    assert "Traceback" not in reloading.daemon.log()


def test_reloads_are_no_way_to_poll_more_often(reloading: Reloading) -> None:
    """However many there are, a poll begins no sooner than a second after the one before."""
    daemon = reloading.daemon

    def polls() -> int:
        told: int = document(daemon.ask("/api/v1/snapshot").body)["poll"]
        return told

    first, begin = polls(), time.monotonic()
    for _ in range(60):
        assert 200 == daemon.ask("/-/reload", "POST").status
    last, seconds = polls(), time.monotonic() - begin

    assert last - first <= seconds + 1


def test_a_pipe_instead_of_the_file(reloading: Reloading) -> None:
    """It is refused, by a signal and over HTTP; the daemon goes on, and ends when told."""
    reloading.path.unlink()
    os.mkfifo(reloading.path)
    reply = reloading.daemon.ask("/-/reload", "POST")
    reloading.daemon.send(signal.SIGHUP)
    reloading.daemon.logged("configuration not reloaded", "no regular file", times=2)

    assert (500, f"{reloading.path}: no regular file\n") == (reply.status, reply.body)

    reloading.daemon.send(signal.SIGTERM)

    assert 0 == reloading.daemon.ended()


def test_without_the_lifecycle_flag(tmp_path: Path) -> None:
    """POST is refused; SIGHUP works all the same, and flags win over the file."""
    path = tmp_path / "x.yml"
    path.write_text(BASE.replace("web: {enable-lifecycle: true}", ""))
    with serving(tmp_path, f"--config.file={path}", "--no-collector.fan") as daemon:
        reloading = Reloading(daemon, path)

        assert (403, "Reloading over HTTP is not enabled.\n") == reloading.post(path.read_text())

        reloading.reloads = 0
        reloading.hang_up(path.read_text() + "collector: {fan: true, power: false}\n")
        success = "amdgpu_exporter_collector_success"
        eventually(lambda: daemon.value(success, collector="power") is None, "power is off")

        assert daemon.value(success, collector="fan") is None
