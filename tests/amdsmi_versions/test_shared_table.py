"""The real AMD SMI 6.1.2 has one gpu_metrics table for all devices, and hands out another's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernel.launch import launcher
from tests.kernel.node import MetricsFault, Node

CHILD = """
import json, sys
from exporter.sources.amdsmi import AmdSmiSession
from exporter.sources.amdsmi_library import load
from exporter.sources.files import KernelFiles
from exporter.values import Absent
session = AmdSmiSession(load().api, KernelFiles(), {})
for line in sys.stdin:
    session.begin(float(line))
    views = [session.views(address, per_partition=False)[0] for address, _ in session.devices()]
    answers = [view.metric("temperature_hotspot") for view in views]
    print(json.dumps([a.detail if isinstance(a, Absent) else a for a in answers]), flush=True)
"""


@contextmanager
def session(node: Node) -> Iterator[subprocess.Popen[str]]:
    """A session over AMD SMI 6.1.2, asked for the junction temperatures by a moment per line."""
    wrapped = launcher("trixie", node.root)
    process = subprocess.Popen(
        wrapped.command(["-c", CHILD]),
        env={**os.environ, **wrapped.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str], moment: float) -> list[object]:
    """The junction temperature of each GPU, or why there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{moment}\n")
    process.stdin.flush()
    answers = json.loads(process.stdout.readline())
    assert isinstance(answers, list)
    return answers


@pytest.mark.parametrize("fault", ["missing", "empty", "garbage", "unknown_revision"])
def test_a_table_of_another_device_is_stale(tmp_path: Path, fault: MetricsFault) -> None:
    """Where a GPU's table can't be read, the library answers with the one it read last: absent."""
    node = Node.create(tmp_path / "tree", "MI300X", 2, metrics=(1, 5))
    told = [node.state[gpu]["temperature_hotspot"] for gpu in (0, 1)]
    with session(node) as process:
        assert told == ask(process, 1.0)

        node.advance(1.0)
        node.break_metrics(0, fault)
        stolen, own = ask(process, 2.0)

        assert f"gpu_metrics: the library handed out that of {node.gpus[1].bdf}" == stolen
        assert told[1] == own

        node.metrics(0)
        node.advance(1.0)

        assert told == ask(process, 3.0)
