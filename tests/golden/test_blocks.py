"""Each bit of the RAS feature mask switches the block that the kernel means by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.page import render, samples, settings, two_polls
from tests.golden.told import Told
from tests.kernel.node import Node

BLOCKS = (
    "umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl", "df", "smn", "sem",
    "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
)  # fmt: skip
"""enum amdgpu_ras_block of the kernel, from bit 0 on."""


def blocks_of(
    source: str, first: int, folder: Path
) -> tuple[dict[tuple[int, str, str], float], dict[tuple[int, str, str], float]]:
    """What is to be served of eight GPUs with one bit each, all blocks counting; and what is."""
    blocks = BLOCKS[first : first + 8]
    node = Node.create(folder / "tree", "MI300X", len(blocks))
    for gpu, _ in enumerate(blocks):
        node.set(gpu, "ras/features", f"feature mask: {1 << (first + gpu):#x}")
        for number, block in enumerate(BLOCKS):
            node.ras(gpu, block, ce=100 + number, ue=200 + number, de=300 + number)
    snapshot, picture = two_polls(Told(node), "sid", [source], settings())
    found = {
        (int(labels["gpu"]), labels["block"], labels["severity"]): value
        for name, labels, value in samples(render(snapshot, picture.collectors))
        if name == "amdgpu_ecc_errors_total" and labels["severity"] != "deferred"
    }
    told = {
        (gpu, block, severity): float(base + first + gpu)
        for gpu, block in enumerate(blocks)
        for severity, base in (("correctable", 100), ("uncorrectable", 200))
    }
    return told, found


@pytest.mark.parametrize("first", range(0, len(BLOCKS), 8))
def test_only_the_enabled_block_is_served(first: int, tmp_path: Path) -> None:
    """From the files, each GPU shows its one block's counts."""
    told, found = blocks_of("sysfs", first, tmp_path)
    assert told == found


def test_rocm_smi_serves_no_other_block(tmp_path: Path) -> None:
    """The library does not know every block, but takes none for another."""
    told, found = blocks_of("rocm_smi", 0, tmp_path)
    assert {"athub"} == {block for _, block, _ in told} - {block for _, block, _ in found}
    assert {key: told[key] for key in found} == found
