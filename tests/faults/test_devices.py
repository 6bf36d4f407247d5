"""Devices, the driver and the libraries come and go."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.sources.supervisor import Launcher
from tests.faults.harness import ALL, Rig, fault, rig, true
from tests.kernel.launch import launcher
from tests.kernel.node import Node, scratch
from tests.kernel.packages import suite_root


@pytest.mark.parametrize(("suite", "model"), [("sid", "MI300X"), ("trixie", "MI210")])
def test_a_device_vanishes_and_comes_back(suite: str, model: str) -> None:
    """The first of three: the indexes of the others change, but no label does."""
    with scratch() as folder:
        node = Node.create(folder, model, 3)
        with rig(node, suite) as run:
            run.all_up()
            labels = run.page.labels()
            assert {str(gpu): run.address(gpu) for gpu in range(3)} == labels
            node.remove(0)
            for _ in range(3):
                page = run.poll()
                assert [1, 2] == page.up()
                assert labels == page.labels()
                run.gone(0)
                run.not_wrong(1, 2)
            run.right(1)
            assert 2.0 == page.one("amdgpu_devices", view="pci")
            assert {"devices_changed": 1} == page.restarts("amdsmi")
            node.restore(0)
            run.all_up()
            assert labels == run.page.labels()
            assert {"devices_changed": 2} == run.page.restarts("amdsmi")
            assert fault("device is down", run.address(0)) == run.told()


def each_once(run: Rig, *faults: tuple[str, str]) -> None:
    """The log has one line for the start of each of these faults and one for its end."""
    expected = [line for event, about in faults for line in fault(event, about)]
    assert sorted(expected) == sorted(run.told())


def test_the_driver_is_unloaded_and_loaded(two: Node) -> None:
    """Without a driver there is a page that says so; with it all is read again."""
    with rig(two) as run:
        run.all_up()
        two.unload_driver()
        run.still = {0, 1}
        for _ in range(3):
            page = run.poll()
            assert [] == page.up()
            run.gone(0, 1)
            assert 0.0 == page.one("amdgpu_exporter_source_up", source="amdsmi")
        assert 1.0 == page.one("amdgpu_exporter_source_up", source="sysfs")
        assert 0.0 == page.one("amdgpu_devices", view="drm")
        two.load_driver()
        run.still = set()
        run.until(lambda page: page.one("amdgpu_exporter_source_up", source="amdsmi"))
        run.all_up()
        each_once(
            run,
            ("source is down", "amdsmi"),
            ("source is down", "rocm_smi"),
            ("device is down", run.address(0)),
            ("device is down", run.address(1)),
        )


def test_no_gpu(two: Node) -> None:
    """A node whose GPUs are all gone has a page, and takes in the first one that comes."""
    two.remove(0)
    two.remove(1)
    with rig(two) as run:
        run.still = {0, 1}
        for _ in range(2):
            page = run.poll()
            assert {} == page.labels()
            assert 0.0 == page.one("amdgpu_devices", view="pci")
        two.restore(1)
        run.until(lambda page: page.one("amdgpu_energy_joules_total", pci_address=run.address(1)))
        run.still = {0}
        run.poll()
        assert true(two, 1) == run.measured(0)
        assert {"0": run.address(1)} == run.page.labels()


def without_libraries(node: Node, folder: Path) -> Launcher:
    """Nothing of AMD's is installed."""
    libraries = folder / "lib"
    libraries.mkdir()
    suite = suite_root("sid")
    for directory in suite.library_dirs:
        for file in directory.iterdir():
            if "_smi" not in file.name:
                (libraries / file.name).symlink_to(file)
    (folder / "rocm").mkdir()
    return replace(
        launcher("sid", node.root),
        suite=replace(suite, library_dirs=(libraries,)),
        rocm=folder / "rocm",
    )


def test_no_library(two: Node, tmp_path: Path) -> None:
    """Without AMD's libraries the kernel's files give what they have, at once."""
    with rig(two, start=without_libraries(two, tmp_path)) as run:
        for _ in range(3):
            page = run.poll()
            assert run.seconds < 2
            assert [0, 1] == page.up()
            run.spared(0, 1)
        assert [0.0, 0.0, 1.0] == [
            page.one("amdgpu_exporter_source_up", source=source) for source in ALL
        ]
        lines = [line for line in run.lines() if line["event"] == "source is down"]
        assert ["amdsmi", "rocm_smi"] == [line["source"] for line in lines]
        assert all(line["reason"] and line["remedy"] for line in lines)


def test_wrapper_and_library_do_not_match(two: Node, tmp_path: Path) -> None:
    """The wrapper of another release is refused; the log names both versions and the remedy."""
    libraries = tmp_path / "lib/x86_64-linux-gnu"  # where Debian's wrapper looks
    libraries.mkdir(parents=True)
    newest = suite_root("sid").rocm / "lib/libamd_smi.so"
    (libraries / "libamd_smi.so").symlink_to(newest)
    (tmp_path / "lib/libamd_smi.so").symlink_to(newest)
    shutil.copytree(suite_root("trixie").rocm / "share/amd_smi", tmp_path / "share/amd_smi")
    start = replace(launcher("sid", two.root), rocm=tmp_path)
    with rig(two, sources=["amdsmi", "sysfs"], start=start) as run:
        for _ in range(2):
            page = run.poll()
            assert [0, 1] == page.up()
            run.spared(0, 1)
        assert 0.0 == page.one("amdgpu_exporter_source_up", source="amdsmi")
        [line] = [line for line in run.lines() if line["event"] == "source is down"]
        assert "the wrapper 24.5.2" in line["reason"]
        assert "does not match the library 27.1.0" in line["reason"]
        assert line["remedy"]
