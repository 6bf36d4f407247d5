"""The daemon: what it serves, how it ends, and what it says of itself."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from exporter.flags import COMMANDS

from .command import document, eventually, gone, serving

SIMULATED = "--sources=simulated"
NO_LIBRARY = {"ROCM_PATH": "/nonexistent", "PATH": "/nonexistent"}
LOUD = "SIMULATED: every value is made up, none comes from hardware"


def test_commands_are_the_known_ones() -> None:
    """A command that is added gets tests here."""
    assert {"serve", "once", "support", "check-config", "leak-check"} == COMMANDS.keys()


def test_serve_by_default(tmp_path: Path) -> None:
    """Without a command it serves: metrics, a page for people, JSON, health; simulated is loud."""
    with serving(tmp_path, SIMULATED) as daemon:
        assert LOUD in daemon.logged("level=warning", "SIMULATED")
        assert 1.0 == daemon.value("amdgpu_exporter_simulated")
        assert "none comes from hardware" in daemon.ask("/").body
        assert document(daemon.ask("/api/v1/snapshot").body)["simulated"] is True

        assert 8 == len([key for key in daemon.series() if key[0] == "amdgpu_up"])
        assert 1.0 == daemon.value("amdgpu_exporter_source_up", source="simulated")
        assert "text/plain" in daemon.ask().type
        assert (200, 200) == tuple(daemon.ask(f"/-/{p}").status for p in ("healthy", "ready"))
        assert 400 == daemon.ask("/metrics?collect[]=nonsense").status
        assert "there is no collector 'nonsense'" in daemon.ask("/metrics?exclude[]=nonsense").body
        assert 403 == daemon.ask("/-/reload", "POST").status


def test_serve_by_name(tmp_path: Path) -> None:
    """On every address, in the format of the log that was asked for, under another path."""
    with serving(
        tmp_path,
        "serve",
        SIMULATED,
        "--log.format=json",
        "--web.telemetry-path=/gpu",
        addresses=("127.0.0.1:0", "127.0.0.2:0"),
    ) as daemon:
        (started,) = [
            told
            for told in map(json.loads, daemon.log().splitlines())
            if told["event"] == "amdgpu-exporter started"
        ]

        assert "info" == started["level"]
        assert started["listen"] == [f"{host}:{port}" for host, port in daemon.addresses]
        assert ["127.0.0.1", "127.0.0.2"] == [host for host, _ in daemon.addresses]
        for address in (0, 1):
            assert "amdgpu_up{" in daemon.ask("/gpu", address=address).body
            assert 404 == daemon.ask("/metrics", address=address).status
            assert "href='/gpu'" in daemon.ask("/", address=address).body


def test_log_level(tmp_path: Path) -> None:
    """Nothing below the level is logged; that all is simulated is a warning."""
    with serving(tmp_path, SIMULATED, "--log.level=warning") as daemon:
        assert [] == daemon.lines("level=info")
        assert daemon.lines(LOUD)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end(tmp_path: Path, number: signal.Signals) -> None:
    """It ends within seconds, with status 0, and leaves no worker behind."""
    with serving(tmp_path, SIMULATED) as daemon:
        workers = daemon.workers()
        assert 1 == len(workers)
        begin = time.monotonic()
        daemon.send(number)

        assert 0 == daemon.ended()
        assert time.monotonic() - begin < 8
        assert gone(workers)
        assert daemon.lines("amdgpu-exporter stopped")
        assert "Traceback" not in daemon.log()


def test_the_end_during_the_first_poll(tmp_path: Path) -> None:
    """A poll that waits for a source is cut short."""
    with serving(tmp_path, SIMULATED, wait=False) as daemon:
        daemon.send(signal.SIGTERM)

        assert 0 == daemon.ended()
        assert "Traceback" not in daemon.log()


def test_no_worker_survives_the_daemon(tmp_path: Path) -> None:
    """Killed without a chance to clean up: its workers see the end of their input, and end."""
    with serving(tmp_path, SIMULATED) as daemon:
        workers = daemon.workers()
        assert 1 == len(workers)
        daemon.send(signal.SIGKILL)

        assert -signal.SIGKILL == daemon.ended()
        eventually(lambda: gone(workers), "the workers end")


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """It is counted, the GPUs come back, and the log has one line for its end and one for that."""
    with serving(tmp_path, SIMULATED, "--poll.interval=1s") as daemon:
        (worker,) = daemon.workers()
        worker.kill()
        restarts = "amdgpu_exporter_source_restarts_total"
        eventually(
            lambda: daemon.value(restarts, source="simulated", reason="crash") == 1.0,
            "the restart is counted",
        )
        eventually(
            lambda: daemon.value("amdgpu_exporter_source_up", source="simulated") == 1.0,
            "the source is up again",
        )

        assert [worker.pid] != [process.pid for process in daemon.workers()]
        daemon.logged("source is down", "source=simulated", "fault=ended")
        assert 2 == len(daemon.lines("fault=")), daemon.log()


def test_without_gpus_and_libraries(tmp_path: Path) -> None:
    """It serves a page that says so, and never makes anything up."""
    sources = "--sources=amdsmi,rocm_smi"
    with serving(tmp_path, sources, "--expected-gpus=8", changes=NO_LIBRARY) as daemon:
        for source in ("amdsmi", "rocm_smi"):
            assert 0.0 == daemon.value("amdgpu_exporter_source_up", source=source)
            assert daemon.logged("source is down", f"source={source}", "remedy=")
        assert 0.0 == daemon.value("amdgpu_exporter_simulated")
        assert 8.0 == daemon.value("amdgpu_devices", view="expected")
        assert not [key for key in daemon.series() if key[0] == "amdgpu_up"]
        assert daemon.logged("fewer GPUs answer than expected", "answering=0", "expected=8")
        assert "No GPU was found on this node." in daemon.ask("/").body
        assert "SIMULATED" not in daemon.log()
        assert 200 == daemon.ask("/-/ready").status


def test_faults_are_logged_once(tmp_path: Path) -> None:
    """Not once per poll."""
    with serving(tmp_path, "--sources=amdsmi", "--poll.interval=1s", changes=NO_LIBRARY) as daemon:
        first = daemon.value("amdgpu_exporter_last_poll_timestamp_seconds") or 0
        eventually(
            lambda: (daemon.value("amdgpu_exporter_last_poll_timestamp_seconds") or 0) > first + 2,
            "three polls",
        )

        assert 1 == len(daemon.lines("source is down"))


def test_numbers_are_kept(tmp_path: Path) -> None:
    """In the state directory, over a restart; one that can't be used is no reason to end."""
    state = tmp_path / "state"
    with serving(tmp_path, SIMULATED, f"--state.directory={state}", name="one") as daemon:
        daemon.send(signal.SIGTERM)
        daemon.ended()
    kept = json.loads((state / "devices.json").read_text())

    assert list(range(8)) == sorted(kept["gpus"].values())

    (state / "devices.json").write_text("{")
    with serving(
        tmp_path, SIMULATED, name="two", changes={"STATE_DIRECTORY": f"{state}"}
    ) as daemon:
        assert daemon.logged("what was kept can't be used", "it is now devices.damaged")
        assert 8 == len([key for key in daemon.series() if key[0] == "amdgpu_up"])
    blocked = tmp_path / "file"
    blocked.touch()
    with serving(tmp_path, SIMULATED, f"--state.directory={blocked}", name="three") as daemon:
        assert daemon.logged("state can't be kept", "can't be written")
        assert 8 == len([key for key in daemon.series() if key[0] == "amdgpu_up"])


def test_the_daemon_holds_no_device(tmp_path: Path) -> None:
    """Neither `/dev/kfd` nor a render node is open in it, and no vendor library is mapped."""
    with serving(tmp_path, SIMULATED) as daemon:
        process = psutil.Process(daemon.process.pid)
        mapped = [region.path for region in process.memory_maps()]

        assert not [f for f in process.open_files() if f.path.startswith("/dev/")]
        assert not [path for path in mapped if "amd_smi" in path or "rocm_smi" in path]
