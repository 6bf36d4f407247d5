"""Signals that come together, or before the daemon is ready for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .command import PATIENCE, ROOT, Serving, command, environment, eventually, serving

SIMULATED = "--sources=simulated"


@pytest.mark.parametrize("times", range(4))
@pytest.mark.parametrize("pair", [(signal.SIGHUP, signal.SIGTERM), (signal.SIGTERM,) * 2])
def test_signals_close_together(
    tmp_path: Path, pair: tuple[signal.Signals, ...], times: int
) -> None:
    """Whichever two come together between two polls, it ends within seconds."""
    with serving(tmp_path, SIMULATED, "--poll.interval=60s") as daemon:
        begin = time.monotonic()
        for number in pair:
            daemon.send(number)

        assert 0 == daemon.ended()
        assert time.monotonic() - begin < 15
        assert "Traceback" not in daemon.log()


def test_a_hang_up_while_starting(tmp_path: Path) -> None:
    """It ends nothing, whenever it comes, and the settings are read again after the start."""
    log = tmp_path / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            command(SIMULATED, "--web.listen-address=127.0.0.1:0"),
            cwd=ROOT,
            env=environment(),
            stdout=written,
            stderr=written,
        )
    daemon = Serving(process, log)
    try:
        eventually(lambda: _holds_back(process.pid, signal.SIGHUP), "it holds back SIGHUP")
        while "amdgpu-exporter started" not in daemon.log():
            daemon.send(signal.SIGHUP)
            time.sleep(0.01)

        assert daemon.logged("configuration reloaded")
        daemon.send(signal.SIGTERM)
        assert 0 == daemon.ended()
    finally:
        process.kill()
        process.wait(PATIENCE)


def _holds_back(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.3, 0.5])
def test_an_interrupt_while_loading(delay: float) -> None:
    """Ctrl-C, from the entry on, whatever is loaded or read at that moment: 130, and no word."""
    process = subprocess.Popen(
        command("once", SIMULATED),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    eventually(lambda: _holds_back(process.pid, signal.SIGHUP), "it has got to the entry")
    time.sleep(0.02 + delay)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=PATIENCE)[1]
    # As a shell tells it: in Python's own last moments the signal itself ends the process.
    status = 128 - process.returncode if process.returncode < 0 else process.returncode

    assert (status, error) in ((130, b""), (0, b""))


HANGING = """
import sys, threading
from exporter.collectors import COLLECTORS
from exporter.config import load
from exporter.daemon import Daemon
from exporter.flags import parse
from exporter.log import set_up
config = load(parse(sys.argv[1:], COLLECTORS), COLLECTORS)
set_up("info", "logfmt")
def hang():
    print("reading", flush=True)
    threading.Event().wait()
sys.exit(0 if Daemon(config, hang).run() else 1)
"""


@pytest.mark.parametrize("by", ["signal", "http"])
def test_a_reload_that_hangs(tmp_path: Path, by: str) -> None:
    """On a mount that hangs, say: polls go on meanwhile, and SIGTERM ends the daemon."""
    log = tmp_path / "log"
    flags = [SIMULATED, "--poll.interval=1s", "--web.enable-lifecycle"]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-c", HANGING, *flags, "--web.listen-address=127.0.0.1:0"],
            cwd=ROOT,
            env=environment(),
            stdout=written,
            stderr=written,
        )
    daemon = Serving(process, log)
    last_poll = "amdgpu_exporter_last_poll_timestamp_seconds"
    try:
        eventually(lambda: daemon.listening(1), "it listens")
        daemon.ready()
        if by == "signal":
            daemon.send(signal.SIGHUP)
            asking = None
        else:
            host, port = daemon.addresses[0]
            asking = subprocess.Popen([sys.executable, "-c", POSTING, host, str(port)])
        daemon.logged("reading")
        before = daemon.value(last_poll) or 0
        eventually(lambda: (daemon.value(last_poll) or 0) > before + 1.5, "two polls")
        begin = time.monotonic()
        daemon.send(signal.SIGTERM)

        assert 0 == daemon.ended()
        assert time.monotonic() - begin < 9
        assert daemon.lines("configuration not reloaded", "the daemon ends")
        if asking is not None:
            assert 0 == asking.wait(PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)


POSTING = """
import sys
from http.client import HTTPConnection, HTTPException
try:
    client = HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
    client.request("POST", "/-/reload")
    assert client.getresponse().status == 500
except (OSError, HTTPException):
    pass
"""


def test_the_web_server_fails(tmp_path: Path) -> None:
    """A daemon that can serve no longer ends: status 1, and one line that says why."""
    log = tmp_path / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-c", FAILING, SIMULATED, "--web.listen-address=127.0.0.1:0"],
            cwd=ROOT,
            env=environment(),
            stdout=written,
            stderr=written,
        )
    daemon = Serving(process, log)
    try:
        assert 1 == daemon.ended()
        assert 1 == len(daemon.lines("level=critical", "the web server has failed", "OSError"))
        assert "Traceback" not in daemon.log()
    finally:
        process.kill()


FAILING = """
import os, sys, threading
from exporter.collectors import COLLECTORS
from exporter.config import load
from exporter.daemon import Daemon
from exporter.flags import parse
from exporter.log import set_up
config = load(parse(sys.argv[1:], COLLECTORS), COLLECTORS)
set_up("info", "logfmt")
daemon = Daemon(config, lambda: config)
def fail():
    while daemon.ready() is not None:
        pass
    for descriptor in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{descriptor}"
        if os.path.lexists(path) and os.readlink(path) == "anon_inode:[eventpoll]":
            os.dup2(os.open("/dev/null", os.O_RDONLY), int(descriptor))
    daemon.web._loop.call_soon_threadsafe(lambda: None)
threading.Thread(target=fail, daemon=True).start()
sys.exit(0 if daemon.run() else 1)
"""
