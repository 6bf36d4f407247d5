"""What the tests of ROCm SMI share."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.launch import Launcher, launcher, tool_launcher
from tests.kernel.node import Node

REPOSITORY = Path(__file__).parents[2]


class Source:
    """A running `child`.

    Attributes:
        hello: what it said after opening.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.hello = self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, "the child does not answer"
        line = self.process.stdout.readline()
        assert line, f"the child ended with status {self.process.wait(10)}"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def poll(self, now: float = 1.0) -> dict[str, Any]:
        """All that one poll gives."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{now}\n")
        self.process.stdin.flush()
        return self._line()

    def read(self, gpu: int = 0, now: float = 1.0) -> dict[str, Any]:
        """One poll's fields of the socket at that place in the list, by collector."""
        address = self.hello["devices"][gpu][0]
        fields = self.poll(now)["read"][address][""]
        assert isinstance(fields, dict)
        return fields


def environment(simulated: Launcher, **more: str) -> dict[str, str]:
    """This process's environment with the simulated kernel and without a ROCm of this machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROCM", "AMDSMI", "RSMI"))
    }
    return {**kept, **simulated.environment(), "PYTHONPATH": str(REPOSITORY), **more}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Start `child` on a simulated node, with the library or the tool of a Debian suite.

    No ROCm is to be found but the suite's: an empty folder stands for `/`.
    """
    running: list[Source] = []

    def run(suite: str, node: Node, how: str = "library", **more: str) -> Source:
        simulated = (tool_launcher if how == "tool" else launcher)(suite, node.root)
        arguments = [how]
        if how == "tool":
            arguments += simulated.command([str(simulated.suite.rocm_smi_cli)])
        process = subprocess.Popen(
            simulated.command(["-m", "tests.rocm_smi.child", *arguments]),
            cwd=REPOSITORY,
            env=environment(simulated, TEST_ROOT=str(tmp_path / "empty"), **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        source = Source(process)
        running.append(source)
        return source

    yield run
    for source in running:
        source.process.kill()
        source.process.communicate()
