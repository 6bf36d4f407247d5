"""The state directory: what keeps it from being written is told when it begins and ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from .command import eventually, run, serving

SIMULATED = ("--sources=simulated", "--poll.interval=1s")
FAULT = "state can't be kept"


def test_a_fault_begins_and_ends(tmp_path: Path) -> None:
    """A directory whose parents are missing is not made; once they are there, the fault ends."""
    state = tmp_path / "mistyped" / "state"
    with serving(tmp_path, *SIMULATED, f"--state.directory={state}") as daemon:
        assert f"{state} can't be written (No such file" in daemon.logged(FAULT, "fault=started")
        assert not state.parent.exists()

        state.parent.mkdir()

        assert "level=info" in daemon.logged(FAULT, "fault=ended")
        eventually(lambda: (state / "devices.json").exists(), "the numbers are kept")
        assert 1 == len(daemon.lines(FAULT, "fault=started"))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Told once, not once per poll, until it can be written."""
    state = tmp_path / "state"
    (state / "devices.new").mkdir(parents=True)  # where the new file would be written
    with serving(tmp_path, *SIMULATED, f"--state.directory={state}") as daemon:
        assert "Is a directory" in daemon.logged(FAULT, "fault=started")
        (state / "devices.new").rmdir()
        daemon.logged(FAULT, "fault=ended")

        assert 1 == len(daemon.lines(FAULT, "fault=started"))
        assert 8 == len(json.loads((state / "devices.json").read_text())["gpus"])


def test_two_daemons(tmp_path: Path) -> None:
    """The second one says that the directory is another's, keeps nothing, and gets it after it."""
    state = tmp_path / "state"
    flags = (*SIMULATED, f"--state.directory={state}")
    with serving(tmp_path, *flags, name="one") as first:
        eventually(lambda: (state / "devices.json").exists(), "the numbers are kept")
        (state / "devices.json").write_text("{")
        with serving(tmp_path, *flags, name="two") as second:
            assert f"{state} is another daemon's" in second.logged(FAULT, "fault=started")
            assert second.logged("what was kept can't be used", "devices.json is damaged")
            assert ["devices.json", "lock"] == sorted(
                path.name for path in state.iterdir() if path.name != "leaks.json"
            )
            assert not first.lines(FAULT)

            first.send(signal.SIGTERM)
            first.ended()

            assert second.logged(FAULT, "fault=ended")
            eventually(lambda: "gpus" in (state / "devices.json").read_text(), "they are kept")


def test_once_sets_nothing_aside(tmp_path: Path) -> None:
    """A command that only looks leaves the directory as it is."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "devices.json").write_text("{")
    done = run("once", "--sources=simulated", f"--state.directory={state}")

    assert 0 == done.status
    assert "devices.json is damaged" in done.err
    assert ["devices.json"] == [path.name for path in state.iterdir()]
