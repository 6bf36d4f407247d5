"""What lies and happens around the daemon: its working directory, its descriptors, its own end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from exporter.sources.supervisor import Limits, PythonLauncher, Source, Supervisor

from .command import PATIENCE, environment, eventually, gone, serving

SIMULATED = "--sources=simulated"
EXECUTED = """
import sys
with open({marks!r}, "a") as file:
    file.write(f"{{__name__}} by {{sys.argv}}\\n")
"""
CONSOLE_SCRIPT = """
import sys
from exporter.__main__ import main
sys.exit(main())
"""
"""What pip makes of the entry point."""


def laid(folder: Path, *names: str) -> Path:
    """A working directory with files of these names; each notes down that it was executed."""
    working = folder / "working"
    for name in names:
        path = working / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EXECUTED.format(marks=str(folder / "executed")))
    return working


@pytest.mark.parametrize("started", ["by module", "by script"])
@pytest.mark.parametrize("sources", ["simulated", "amdsmi,sysfs"])
def test_nothing_in_the_working_directory_is_executed(
    started: str, sources: str, tmp_path: Path
) -> None:
    """Neither by the daemon nor by a worker, which has to find the standard library and AMD SMI.

    Python itself takes the package that `python -m` names from the working directory, if it is
    there; the command that is installed does not.
    """
    names = ["json.py", "yaml.py", "select.py", "resource.py", "amdsmi/__init__.py"]
    arguments = ["-m", "exporter"]
    if started == "by script":
        script = tmp_path / "bin/amdgpu-exporter"
        script.parent.mkdir()
        script.write_text(CONSOLE_SCRIPT)
        arguments = [str(script)]
        names += ["exporter/__init__.py", "exporter/sources/__init__.py"]
    done = subprocess.run(
        [sys.executable, *arguments, "once", f"--sources={sources}"],
        cwd=laid(tmp_path, *names),
        env=environment(ROCM_PATH="/nonexistent"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    up = sources.rpartition(",")[2]

    assert f'amdgpu_exporter_source_up{{source="{up}"}} 1.0' in done.stdout.splitlines()
    assert not (tmp_path / "executed").exists()


def free(limit: int) -> int:
    """How many descriptors this process could open below a limit."""
    return sum(not os.path.lexists(f"/proc/self/fd/{number}") for number in range(limit))


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many descriptors, no more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = next(limit for limit in range(1, before[0]) if free(limit) >= count + 1) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_descriptors_run_out_anywhere() -> None:
    """Wherever it happens in a poll: told, no process or descriptor is left, and then all is well.

    Starting a worker takes six ends of pipes and, for a moment, some more.
    """
    children = psutil.Process().children
    open_before = os.listdir("/proc/self/fd")
    told: list[bool] = []
    for count in range(12):
        source = Source("sysfs", PythonLauncher(), Limits(1.0))
        supervisor = Supervisor([source])
        with descriptors_left(count):
            [report] = supervisor.poll()
        told.append(report.up)
        if not report.up:
            assert "its worker could not be started: [Errno 24] Too many" in report.reason
            assert [] == children()
            source.hurry()
            [report] = supervisor.poll()
        assert report.up
        supervisor.stop()
        assert [] == children()
        assert open_before == os.listdir("/proc/self/fd")
    assert told == sorted(told)
    assert {False, True} == set(told)


def test_a_daemon_without_descriptors(tmp_path: Path) -> None:
    """It says why its source is down, starts nothing that it could not manage, and recovers."""
    with serving(tmp_path, SIMULATED, "--poll.interval=1s") as daemon:
        own = psutil.Process(daemon.process.pid)
        soft, hard = own.rlimit(psutil.RLIMIT_NOFILE)
        own.rlimit(psutil.RLIMIT_NOFILE, (8, hard))
        for worker in daemon.workers():
            worker.kill()
        daemon.logged("source is down", "Too many open files", "descriptors", "fault=started")

        assert [] == daemon.workers()

        own.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
        daemon.logged("source is down", "Too many open files", "fault=ended")

        assert 1.0 == daemon.value("amdgpu_exporter_source_up", source="simulated")
        assert "Traceback" not in daemon.log()


def test_no_busy_worker_survives_the_daemon(tmp_path: Path) -> None:
    """One that stands still can't see the end of its input, and ends all the same."""
    with serving(tmp_path, SIMULATED) as daemon:
        workers = daemon.workers()
        try:
            assert workers
            for worker in workers:
                worker.suspend()
            daemon.send(signal.SIGKILL)

            assert -signal.SIGKILL == daemon.ended()
            eventually(lambda: gone(workers), "the workers end")
        finally:
            for worker in workers:
                if worker.is_running():
                    worker.kill()
