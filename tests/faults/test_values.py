"""Wrong values: tables and files that are missing, broken, old, or refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.harness import Page, fault, rig, true
from tests.kernel import metrics as blob
from tests.kernel.node import Node

SICK = 1
REJECTED = "amdgpu_exporter_rejected_values_total"
Break = Callable[[Node], None]


def rejected(page: Page) -> set[tuple[str, str]]:
    """Collectors and reasons of the values turned down so far, but for what is always missing."""
    found = page.samples[REJECTED]
    pairs = {(labels["collector"], labels["reason"]) for labels, value in found if value}
    return {pair for pair in pairs if pair[1] != "sentinel"}


def changed(node: Node) -> None:
    """The sick GPU is now hotter and busier, which the kernel's files say, but not its table."""
    node.state[SICK].update(
        temperature_hotspot=88, curr_socket_power=500, average_gfx_activity=97, energy_accumulator=7
    )
    node.set(SICK, "hwmon/temp2_input", 88000)
    node.set(SICK, "hwmon/power1_input", 500 * 10**6)
    node.set(SICK, "gpu_busy_percent", 97)


def refuse(number: int, node: Node) -> None:
    """The table can't be read."""
    node.rules(f"*/{node.gpus[SICK].bdf}/gpu_metrics errno {number}")


def all_ones(node: Node) -> None:
    """Every field of the table is all ones, under a good header."""
    version = node.metrics_version
    whole = {}
    for member in blob.fields(version):
        ones = (1 << 8 * {"H": 2, "I": 4, "Q": 8}[member.code]) - 1
        whole[member.name] = ones if member.count == 1 else [ones] * member.count
    node.put(node.device(SICK, "gpu_metrics"), blob.pack(version, whole))


TABLES: dict[str, tuple[Break, str]] = {
    "missing": (lambda node: node.break_metrics(SICK, "missing"), "error"),
    "empty": (lambda node: node.break_metrics(SICK, "empty"), "stale"),
    "garbage": (lambda node: node.break_metrics(SICK, "garbage"), "stale"),
    "zero": (lambda node: node.break_metrics(SICK, "zero"), "stale"),
    "unknown revision": (lambda node: node.break_metrics(SICK, "unknown_revision"), "stale"),
    "all ones": (lambda node: node.break_metrics(SICK, "all_ones"), "stale"),
    "clocks stand still": (lambda _: None, "stale"),
    "EIO": (partial(refuse, errno.EIO), "stale"),
    "EBUSY": (partial(refuse, errno.EBUSY), "stale"),
}
"""How gpu_metrics may be wrong, and as what that shows with AMD SMI 10.1, which mostly reports
success and hands out what it read before."""


@pytest.mark.parametrize("kind", TABLES)
def test_broken_table(kind: str, two: Node) -> None:
    """No value comes from a broken table; what the kernel's files have comes from there."""
    spoil, reason = TABLES[kind]
    with rig(two, sources=["amdsmi", "sysfs"]) as run:
        run.all_up()
        assert set() == rejected(run.page)
        run.pace = 1.0
        run.still = {SICK}
        changed(two)
        spoil(two)
        page = run.poll()
        assert [0, 1] == page.up()
        run.right(0)
        run.not_wrong(SICK)
        assert None is page.one("amdgpu_energy_joules_total", gpu=SICK)
        assert ("power", reason) in rejected(page)
        run.poll()
        run.right(0)
        run.spared(SICK)
        two.rules()
        run.still = set()
        run.all_up()
        assert fault("values are missing", run.address(SICK)) == run.told()
        assert reason == run.lines()[0]["reason"]


@pytest.mark.parametrize(("suite", "model"), [("sid", "MI300X"), ("trixie", "MI210")])
@pytest.mark.parametrize("gpu", [0, 1])
def test_table_of_an_integrated_gpu(gpu: int, suite: str, model: str, tmp_path: Path) -> None:
    """A table whose format the library never knew is no fault, whatever it hands out instead."""
    node = Node.create(tmp_path, model, 2)
    node.break_metrics(gpu, "unknown_revision")
    with rig(node, suite, sources=["amdsmi", "sysfs"]) as run:
        run.pace = 1.0
        run.still = {gpu}  # else its table is written anew
        run.until(lambda page: page.up() == [0, 1])
        for _ in range(3):
            page = run.poll()
            assert [0, 1] == page.up()
            run.right(1 - gpu)
            run.spared(gpu)
        assert set() == rejected(page)
        assert [] == run.told()


def test_ones_in_every_field(two: Node) -> None:
    """All ones mean "no value", not 65535 degrees; the library makes nonsense of one clock."""
    with rig(two, sources=["amdsmi", "sysfs"]) as run:
        run.all_up()
        run.pace = 1.0
        run.still = {SICK}
        changed(two)
        all_ones(two)
        page = run.poll()
        assert [0, 1] == page.up()
        run.right(0)
        run.not_wrong(SICK)
        assert None is page.one("amdgpu_energy_joules_total", gpu=SICK)
        assert 0 < (page.one(REJECTED, collector="power", reason="sentinel") or 0)
        run.poll()
        run.spared(SICK)
        run.still = set()
        run.all_up()
        assert fault("values are missing", run.address(SICK)) == run.told()


@pytest.mark.parametrize("kind", ["missing", "garbage", "EIO"])
def test_broken_table_with_amd_smi_6_1_2(kind: str, old: Node) -> None:
    """6.1.2 hands out what it read last, of whatever device."""
    spoil, _ = TABLES[kind]
    with rig(old, "trixie", sources=["amdsmi", "sysfs"]) as run:
        run.all_up()
        run.pace = 1.0
        run.still = {SICK}
        spoil(old)
        page = run.poll()
        assert [0, 1] == page.up()
        run.right(0)
        run.not_wrong(SICK)
        assert None is page.one("amdgpu_energy_joules_total", gpu=SICK)
        assert ("power", "stale") in rejected(page)
        old.rules()
        run.still = set()
        run.all_up()
        assert fault("values are missing", run.address(SICK)) == run.told()


def test_table_that_ends_in_zeros(old: Node) -> None:
    """A truncated table of MI210, whose end the library fills with zeros, is not believed."""
    with rig(old, sources=["amdsmi", "sysfs"]) as run:
        run.all_up()
        run.still = {SICK}
        old.advance(1, [SICK])
        old.break_metrics(SICK, "truncated")
        page = run.poll()
        run.right(0)
        run.not_wrong(SICK)
        assert None is page.one("amdgpu_energy_joules_total", gpu=SICK)
        assert ("power", "implausible") in rejected(page)
        run.still = set()
        run.all_up()
        assert fault("values are missing", run.address(SICK)) == run.told()


def test_energy_goes_backwards(two: Node) -> None:
    """The counter is shown as it is, a counter that was reset, and counted as that."""
    with rig(two, sources=["amdsmi"]) as run:
        run.all_up()
        assert 0.0 == run.page.one("amdgpu_exporter_reset_values_total", collector="power")
        two.metrics(SICK, energy_accumulator=65536)
        page = run.poll()
        run.right()
        assert 1.0 == page.one("amdgpu_exporter_reset_values_total", collector="power")
        assert 300 > (page.one("amdgpu_energy_joules_total", gpu=SICK) or 0)
        run.poll()
        assert 1.0 == run.page.one("amdgpu_exporter_reset_values_total", collector="power")
        assert [] == run.told()


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EIO, "error"), (errno.EBUSY, "busy"), (errno.EACCES, "not_permitted")],
)
def test_file_that_is_refused_once(number: int, reason: str, two: Node) -> None:
    """One value is absent for one poll, told with its reason, and back at the next."""
    with rig(two) as run:
        run.all_up()
        with two.faulty(f"*/{run.address(SICK)}/mem_info_vram_used errno {number}"):
            page = run.poll()
        assert [0, 1] == page.up()
        run.right(0)
        assert {**true(two, SICK), "vram": None} == run.measured(SICK)
        assert {("memory", reason)} == rejected(page)
        run.poll()
        run.right()
        assert fault("values are missing", run.address(SICK)) == run.told()
        assert f"mem_info_vram_used: {os.strerror(number)}" in run.lines()[0]["detail"]


def test_file_without_data(two: Node) -> None:
    """ENODATA is how the kernel says that there is no such value: absent, but no fault."""
    with rig(two) as run:
        run.all_up()
        with two.faulty(f"*/{run.address(SICK)}/mem_info_vram_used errno {errno.ENODATA}"):
            run.poll()
        run.right(0)
        assert {**true(two, SICK), "vram": None} == run.measured(SICK)
        run.poll()
        run.right()
        assert [] == run.told()


def test_file_that_hangs(two: Node) -> None:
    """A hwmon file of one GPU hangs: the other GPU is read, the hanging one when it answers."""
    with rig(two, sources=["sysfs"]) as run:
        run.until(lambda page: page.up() == [0, 1])
        run.spared(0, 1)
        two.rules(f"*/{run.address(SICK)}/hwmon/*/temp2_input delay inf")
        page = run.poll()
        assert [0] == page.up()
        run.spared(0)
        run.gone(SICK)
        assert {"hang": 1} == page.restarts("sysfs")
        two.rules()
        run.until(lambda page: page.up() == [0, 1])
        run.spared(0, 1)
        assert fault("device is down", run.address(SICK)) == run.told()
