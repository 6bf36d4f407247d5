"""What the tests of the wrappers share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.amdsmi_versions import standin
from tests.kernel.packages import amdsmi_wheel

REPOSITORY = Path(__file__).parents[2]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a release's wrapper and library, laid out as an installed ROCm; each is made once."""
    made: dict[str, Path] = {}

    def make(version: str) -> Path:
        if version not in made:
            made[version] = standin.rocm(
                tmp_path_factory.mktemp(f"rocm-{version}"),
                amdsmi_wheel(version) / "amdsmi",
                standin.NUMBERS[version],
            )
        return made[version]

    return make


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `child` in a process of its own.

    No AMD SMI is to be found but what the test names: by default not even a system's own, since
    an empty folder stands for `/`, nor that of the environment in which the tests run (-S).
    """

    def start(
        *,
        devices: Mapping[str, Any] | None = None,
        wrapper: Path | None = None,
        root: Path = tmp_path,
        **environment: str,
    ) -> dict[str, Any]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROCM", "AMDSMI", "RSMI"))
        }
        path = [str(REPOSITORY)] + ([str(wrapper)] if wrapper else [])
        done = subprocess.run(
            [sys.executable, "-S", "-m", "tests.amdsmi_versions.child"],
            input=json.dumps(devices or {}),
            cwd=tmp_path,
            env={
                **kept,
                "TEST_ROOT": str(root),
                "PYTHONPATH": os.pathsep.join(path),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        ended_well = (0, "")
        assert ended_well == (done.returncode, done.stderr)
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    return start
