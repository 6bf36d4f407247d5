"""The number of series, and the length of what stands in labels, on real pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.golden.page import PAGES, Case, read, render, samples, settings, two_polls
from tests.golden.told import Told
from tests.kernel.node import Node
from tests.naming.contract import MAX_LABEL_VALUE, MAX_PER_PARTITION, MAX_PER_SOCKET

NODE_SERIES = 300
"""How many series about the node and the exporter there may be; no matter of the contract."""


def count(samples: Iterable[tuple[str, dict[str, str], float]]) -> tuple[Counter[str], int, int]:
    """Series by socket, the most of any partition, and those of the node."""
    sockets: Counter[str] = Counter()
    partitions: Counter[tuple[str, str]] = Counter()
    node = 0
    for _, labels, _ in samples:
        address, partition = labels.get("pci_address"), labels.get("partition", "shared")
        if address is None:
            node += 1
        elif partition == "shared":
            sockets[address] += 1
        else:
            partitions[address, partition] += 1
    return sockets, max(partitions.values(), default=0), node


@pytest.mark.parametrize("partitions", [1, 8])
def test_the_budget_is_kept(partitions: int, tmp_path: Path) -> None:
    """Eight MI300X over AMD SMI 10.1 with all sources on, whole and as 64 partitions."""
    case = Case("budget", "all", "sid", "MI300X", 8, partitions)
    sockets, partition, node = count(read(case, tmp_path).samples())
    print(f"per socket {max(sockets.values())}, per partition {partition}, node {node}")  # noqa: T201  # for -s
    assert 8 == len(sockets)
    assert max(sockets.values()) <= MAX_PER_SOCKET
    assert partition <= MAX_PER_PARTITION
    assert (partition > 0) == (partitions > 1)
    assert node <= NODE_SERIES


@pytest.mark.parametrize("path", sorted(PAGES.rglob("*.prom")), ids=lambda p: f"{p.parts[-2:]}")
def test_labels_on_the_pages_are_short(path: Path) -> None:
    """No label value is longer than the contract allows, or names a process's folder."""
    values = [value for _, labels, _ in samples(path.read_text()) for value in labels.values()]
    assert max(map(len, values)) <= MAX_LABEL_VALUE
    assert [] == [value for value in values if "/proc/" in value]


def test_long_texts_of_the_kernel_are_cut(tmp_path: Path) -> None:
    """A name, serial or version of any length ends up short in its label."""
    node = Node.create(tmp_path / "tree", "MI300X", 1)
    for name in ("product_name", "serial_number", "vbios_version", "fw_version/smc_fw_version"):
        node.set(0, name, "1" * 1000)
    snapshot, picture = two_polls(Told(node), "bookworm", ["sysfs"], settings())
    found = samples(render(snapshot, picture.collectors))
    lengths = {
        (name, label): len(value)
        for name, labels, _ in found
        for label, value in labels.items()
        if len(value) >= MAX_LABEL_VALUE
    }
    info = [("amdgpu_info", label) for label in ("name", "serial", "vbios_version")]
    assert (
        dict.fromkeys([*info, ("amdgpu_firmware_devices", "version")], MAX_LABEL_VALUE) == lengths
    )
