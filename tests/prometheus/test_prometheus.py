"""What Prometheus answers is what the simulated kernel was told, and follows its changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.golden.page import PAGES
from tests.kernel.node import Node
from tests.kernel.packages import debian_tool
from tests.prometheus.site import Site, site

HBM = "amdgpu_hbm_temperature_celsius"
RECEIVED = "amdgpu_xgmi_receive_bytes_per_second"
REPLAYS = "amdgpu_pcie_replays_total"
UP = "amdgpu_up"
KILOBYTES = 1024  # of a MiB, as gpu_metrics counts


def tell(site: Site, gpu: int, *, degrees: int, mebibytes: int, replays: int) -> None:
    """Give a GPU a temperature of its memory, traffic on its link, and replays."""
    site.hardware.node.temperature(gpu, "mem", degrees)
    site.hardware.node.metrics(gpu, pcie_replay_count_acc=replays)
    site.hardware.node.set(gpu, "pcie_replay_count", replays)
    site.hardware.kilobytes[gpu] = mebibytes * KILOBYTES


@pytest.mark.parametrize("sources", ["amdsmi,sysfs", "rocm_smi,sysfs", "amdsmi,rocm_smi,sysfs"])
def test_prometheus_answers_what_the_kernel_was_told(sources: str, tmp_path: Path) -> None:
    """Over AMD SMI 10.1 and ROCm SMI 6.4.1: temperature, bandwidth, replays, and their changes."""
    node = Node.create(tmp_path / "tree", "MI300X", 2)
    with site(node, "sid", sources, tmp_path) as running:
        tell(running, 0, degrees=61, mebibytes=31_000, replays=41)
        tell(running, 1, degrees=62, mebibytes=32_000, replays=52)
        running.until(HBM, {"gpu=0": 61, "gpu=1": 62})
        running.until(RECEIVED, {"gpu=0,link=0": 31_000 * 2**20, "gpu=1,link=0": 32_000 * 2**20})
        running.until(REPLAYS, {"gpu=0": 41, "gpu=1": 52})

        tell(running, 1, degrees=93, mebibytes=1_000, replays=57)
        running.until(HBM, {"gpu=0": 61, "gpu=1": 93})
        running.until(RECEIVED, {"gpu=0,link=0": 31_000 * 2**20, "gpu=1,link=0": 1_000 * 2**20})
        running.until(REPLAYS, {"gpu=0": 41, "gpu=1": 57})


def test_a_lost_device_leaves_only_amdgpu_up(tmp_path: Path) -> None:
    """Its series go stale at once, `amdgpu_up` is 0; when it is back, so are they."""
    node = Node.create(tmp_path / "tree", "MI300X", 2)
    with site(node, "sid", "amdsmi,sysfs", tmp_path) as running:
        running.until(HBM, {"gpu=0": 41, "gpu=1": 42})
        running.until(UP, {"gpu=0": 1, "gpu=1": 1})

        node.remove(0)
        running.until(UP, {"gpu=0": 0, "gpu=1": 1})
        left = '{gpu="0", __name__!~"amdgpu_(up|suspended)"}'
        running.until(left, {})
        running.until(HBM, {"gpu=1": 42})
        running.until("up", {"": 1})

        node.restore(0)
        running.until(UP, {"gpu=0": 1, "gpu=1": 1})
        running.until(HBM, {"gpu=0": 41, "gpu=1": 42})


def test_nothing_is_left_of_a_daemon_that_ended(tmp_path: Path) -> None:
    """`up` is 0, and every series of it is stale."""
    node = Node.create(tmp_path / "tree", "MI300X", 1)
    with site(node, "sid", "amdsmi,sysfs", tmp_path) as running:
        running.until(UP, {"gpu=0": 1})
        running.daemon.terminate()
        assert 0 == running.daemon.wait(20)
        running.until("up", {"": 0})
        running.until('{__name__=~"amdgpu_.*"}', {})


def test_a_table_of_zeros_is_absent_in_prometheus(tmp_path: Path) -> None:
    """A table that is all zeros does not show a GPU at 0 degrees."""
    node = Node.create(tmp_path / "tree", "MI300X", 2)
    with site(node, "sid", "amdsmi", tmp_path) as running:
        running.until(HBM, {"gpu=0": 41, "gpu=1": 42})
        running.hardware.frozen.add(0)
        node.break_metrics(0, "zero")
        running.until(HBM, {"gpu=1": 42})


@pytest.mark.parametrize("page", sorted(PAGES.rglob("*.prom")), ids=lambda p: f"{p.parts[-2:]}")
def test_promtool_finds_nothing(page: Path) -> None:
    """`promtool check metrics` is clean on every golden page."""
    done = subprocess.run(
        [str(debian_tool("prometheus") / "usr/bin/promtool"), "check", "metrics"],
        input=page.read_bytes(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
