"""The vendor's library crashes, hangs, prints, leaks, and leaves locks behind."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.harness import LIMITS, PATIENCE, Rig, fault, rig, true
from tests.kernel.launch import Launcher, launcher
from tests.kernel.node import Node

SICK = 1
IN_INIT = "dev/dri/renderD128"
"""A file that AMD SMI alone opens, and only while it starts."""


def hang(run: Rig) -> None:
    """From now on, reading the gpu_metrics of one GPU does not end."""
    run.node.rules(f"*/{run.address(SICK)}/gpu_metrics delay inf")


def test_hang_on_one_gpu(eight: Node) -> None:
    """One GPU of eight hangs: the other seven go on, it comes back when it answers again."""
    others = [gpu for gpu in range(8) if gpu != SICK]
    with rig(eight) as run:
        run.all_up()
        hang(run)
        page = run.poll()  # on a busy machine, too short for the worker's successor to read all
        assert others == page.up()
        run.not_wrong(*range(8))
        assert 1 == page.restarts("amdsmi")["hang"]
        page = run.poll()
        assert others == page.up()
        assert all(all(run.measured(gpu).values()) for gpu in others)
        page = run.poll()
        assert others == page.up()
        run.right(*others)
        run.not_wrong(SICK)
        assert 1.0 == page.one("amdgpu_exporter_source_up", source="amdsmi")
        assert 0.0 == page.one("amdgpu_exporter_collector_success", collector="power")
        page = run.until(lambda _: run.measured(SICK)["junction"])
        assert others == page.up()
        run.right(*others)
        run.spared(SICK)
        eight.rules()
        run.all_up()
        assert fault("device is down", run.address(SICK)) == run.told()
        assert f"amdsmi: {run.address(SICK)} did not answer in time" == run.lines()[0]["reason"]


@pytest.mark.parametrize(("action", "signal"), [("segv", "SIGSEGV"), ("abort", "SIGABRT")])
def test_crash_on_one_gpu(action: str, signal: str, two: Node) -> None:
    """The library dies when it reads one GPU: the other one is read in the same poll."""
    with rig(two) as run:
        run.all_up()
        two.rules(f"*/{run.address(SICK)}/gpu_metrics {action}")
        page = run.poll()
        assert [0] == page.up()
        run.right(0)
        run.not_wrong(SICK)
        assert 1 == page.restarts("amdsmi")["crash"]
        two.rules()
        run.all_up()
        assert fault("device is down", run.address(SICK)) == run.told()
        died = f"amdsmi: its worker died reading {run.address(SICK)} (killed by {signal})"
        assert died == run.lines()[0]["reason"]


def test_a_gpu_that_hangs_again_is_left_out_for_longer(two: Node) -> None:
    """A second hang soon after the first costs another worker, but keeps the GPU out longer."""
    with rig(two, sources=["amdsmi"]) as run:
        out = []
        for _ in range(2):
            run.all_up()
            hang(run)
            run.poll()
            begin = run.snapshot.timestamp
            two.rules()
            run.all_up()
            out.append(run.snapshot.timestamp - begin)
        assert out[1] > out[0] + 0.5
        assert {"hang": 2} == run.page.restarts("amdsmi")


@pytest.mark.parametrize(
    ("action", "reason", "why"),
    [
        ("segv", "crash", "its worker died (killed by SIGSEGV)"),
        ("delay inf", "init_hang", "it did not open in time"),
    ],
)
def test_crash_or_hang_in_init(action: str, reason: str, why: str, two: Node) -> None:
    """The library fails while it starts: the other sources give what they have meanwhile."""
    two.rules(f"{IN_INIT} {action}")
    with rig(two, limits=replace(LIMITS, init=1.5, first=0.9)) as run:
        run.until(lambda page: page.restarts("amdsmi"))
        page = run.until(lambda page: page.up() == [0, 1])
        run.not_wrong(0, 1)
        assert {reason} == page.restarts("amdsmi").keys()
        assert 0.0 == page.one("amdgpu_exporter_source_up", source="amdsmi")
        two.rules()
        run.until(lambda page: page.one("amdgpu_exporter_source_up", source="amdsmi"))
        run.all_up()
        assert fault("source is down", "amdsmi") == run.told()
        assert why == run.lines()[0]["reason"]


def test_last_words(two: Node) -> None:
    """What a dying worker wrote to standard error, a Python traceback for one, is in the log."""
    start = launcher("sid", two.root)
    broken = replace(start, extra={"AMDGPU_ASIC_ID_TABLE_PATHS": "", "PYTHONHOME": "/nowhere"})
    with rig(two, sources=["amdsmi"], start=broken) as run:
        page = run.poll()
        assert 1 == page.restarts("amdsmi")["crash"]
        [line] = run.lines()
        assert "its worker died (exit status 1)" == line["reason"]
        assert "its last words: " in line["remedy"]
        assert "No module named 'encodings'" in line["remedy"]


def test_print(two: Node) -> None:
    """What the library prints to standard output spoils no answer."""
    with rig(two) as run:
        two.rules('gpu_metrics print {"device": "nonsense"}')
        run.all_up()
        assert {} == run.page.restarts("amdsmi")
        assert [] == run.told()


def test_open_files_leak(two: Node) -> None:
    """A worker above the ceiling of open files is replaced between two polls."""
    with rig(two, sources=["amdsmi", "sysfs"], limits=replace(LIMITS, open_files=60)) as run:
        run.all_up()
        two.rules("gpu_metrics leakfd 10")
        run.until(lambda page: page.restarts("amdsmi"))
        assert {"open_files": 1} == run.page.restarts("amdsmi")
        run.right()
        assert 60 < (run.page.one("amdgpu_exporter_worker_open_fds", source="amdsmi") or 0)
        two.rules()
        run.all_up()
        assert 60 > (run.page.one("amdgpu_exporter_worker_open_fds", source="amdsmi") or 99)
        assert fault("worker was replaced", "amdsmi") == run.told()
        assert "it had over 60 open files" == run.lines()[0]["reason"]


_GROW = """
import pathlib, threading, time
def grow():
    kept = []
    while len(kept) < 30:
        if pathlib.Path({path!r}).exists():
            kept.append(bytearray(b"x") * (8 << 20))
        time.sleep(0.02)
threading.Thread(target=grow, daemon=True).start()
"""


def test_memory_grows(two: Node, tmp_path: Path) -> None:
    """A worker above the ceiling of memory is replaced between two polls."""
    growing = tmp_path / "growing"
    (tmp_path / "sitecustomize.py").write_text(_GROW.format(path=str(growing)))
    start = replace(launcher("sid", two.root), modules=(tmp_path,))
    limits = replace(LIMITS, resident_bytes=120 << 20)
    with rig(two, sources=["amdsmi"], limits=limits, start=start) as run:
        run.all_up()
        growing.touch()
        run.until(lambda page: page.restarts("amdsmi"))
        growing.unlink()
        run.right()
        run.all_up()
        assert {"memory": 1} == run.page.restarts("amdsmi")
        assert 60 << 20 > (run.page.one("amdgpu_exporter_worker_resident_bytes") or 1 << 40)
        assert fault("worker was replaced", "amdsmi") == run.told()
        assert "it had over 120 MiB of memory" == run.lines()[0]["reason"]


class TestLocks:
    """AMD SMI 6.1.2 keeps a lock per GPU in /dev/shm, which all programs on the node share."""

    def test_none_is_left_behind(self, old: Node) -> None:
        """Workers killed while they hold a lock: their successors, and other programs, can work."""
        start = launcher("trixie", old.root)
        with rig(old, "trixie", sources=["amdsmi"]) as run:
            run.all_up()
            for _ in range(2):
                hang(run)
                assert [0] == run.poll().up()
                run.right(0)
                old.rules()
                run.all_up()
            assert {"hang": 2} == run.page.restarts("amdsmi")
        for _ in range(3):
            assert "" == self._other(start)

    def test_one_left_behind_by_another_program(self, old: Node) -> None:
        """Its GPU alone is left out, and the log tells what the library advises.

        The library waits 5 seconds for such a lock when it starts, and without an end when it
        needs it. The exporter deletes no file that isn't its own; when someone did, all is well.
        """
        start = launcher("trixie", old.root)
        old.rules(f"*/{old.gpus[SICK].bdf}/gpu_metrics delay inf")
        self._other(start, kill_after=1.0)
        old.rules()
        self._other(start)  # inherits the lock, and takes it with it when it ends
        assert "timed out" == self._other(start, limit=1.0)
        limits = replace(LIMITS, init=12.0, first=12.0)
        with rig(old, "trixie", sources=["amdsmi", "sysfs"], limits=limits) as run:
            page = run.until(lambda page: page.restarts("amdsmi"))
            page = run.until(lambda page: page.one("amdgpu_energy_joules_total", gpu=0))
            assert [0] == page.up()
            run.right(0)
            run.spared(SICK)
            for file in (old.root / "dev/shm").iterdir():
                file.unlink()
            # A probe has the new lock, and so finds the GPU well; the worker has to be replaced.
            run.until(lambda _: true(old, SICK) == run.measured(SICK))
            run.right()
            assert {"hang"} == run.page.restarts("amdsmi").keys()
            assert set(fault("device is down", run.address(SICK))) == set(run.told())
            assert "left a lock behind in /dev/shm/rocm_smi*" in run.lines()[0]["reason"]

    @staticmethod
    def _other(start: Launcher, limit: float = PATIENCE, kill_after: float = 0.0) -> str:
        """Another program reads every GPU and ends; empty if that went well."""
        code = (
            "import os, sys; sys.path.insert(0, os.environ['ROCM_PATH'] + '/share/amd_smi')\n"
            "import amdsmi as smi\n"
            "smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)\n"
            "for gpu in smi.amdsmi_get_processor_handles():\n"
            "    smi.amdsmi_get_pcie_info(gpu), smi.amdsmi_get_gpu_metrics_info(gpu)\n"
        )
        with subprocess.Popen(
            start.command(["-c", code]), env={**os.environ, **start.environment()}
        ) as process:
            try:
                status = process.wait(kill_after or limit)
            except subprocess.TimeoutExpired:
                process.kill()
                return "timed out"
        return "" if status == 0 else f"status {status}"
