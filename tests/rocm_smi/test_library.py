"""Finding and loading the library through AMD's binding file, in each of its forms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.rocm_smi_library import binding_files
from tests.kernel.launch import launcher
from tests.kernel.node import Node
from tests.kernel.packages import SUITES
from tests.rocm_smi.conftest import REPOSITORY, Source, environment

Start = Callable[..., Source]

_LOAD = """
import json, os, sys
from exporter.sources.rocm_smi_library import load
from exporter.sources.session import UnavailableError
try:
    loaded = load(root=os.environ["TEST_ROOT"])
    said = {"version": str(loaded.version), "path": loaded.library_path}
except UnavailableError as error:
    said = {"reason": error.reason, "remedy": error.remedy}
sys.stderr.write(json.dumps(said))
"""


def binding(folder: Path, text: str) -> Path:
    """Write a binding file and something in the place of its library, as an installed ROCm has."""
    home = folder / "libexec" / "rocm_smi"
    home.mkdir(parents=True)
    (home / "rsmiBindings.py").write_text(text)
    (folder / "lib").mkdir()
    (folder / "lib" / "librocm_smi64.so.1").write_text("no library\n")
    return home / "rsmiBindings.py"


def load(root: Path, **more: str) -> tuple[str, dict[str, Any]]:
    """Run `load` on this machine in a process of its own: its standard output, and its result."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        env={"PYTHONPATH": str(REPOSITORY), "TEST_ROOT": str(root), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    result = json.loads(done.stderr)
    assert isinstance(result, dict)
    return done.stdout, result


@pytest.mark.parametrize("suite", SUITES)
def test_every_form_of_the_binding_file_loads_and_prints_nothing(
    tmp_path: Path, suite: str
) -> None:
    """5.2's file loads the library at import, later ones through initRsmiBindings."""
    simulated = launcher(suite, Node.create(tmp_path / "tree", "MI210", 1).root)
    done = subprocess.run(
        simulated.command(["-c", _LOAD]),
        env=environment(simulated, TEST_ROOT=str(tmp_path / "empty")),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = json.loads(done.stderr)
    expected = {"bookworm": "1.0.0", "trixie": "7.2.0", "sid": "7.6.0"}[suite]
    assert ("", expected) == (done.stdout, loaded["version"])
    assert str((simulated.suite.rocm / "lib" / "librocm_smi64.so.1").resolve()) == loaded["path"]


def test_newer_versions_come_first_and_rocm_path_before_all(tmp_path: Path) -> None:
    """The places of all versions are searched; one file reached twice is tried once."""
    for place in ("opt/rocm-5.7.1", "opt/rocm-6.10.0", "opt/rocm-6.9.0", "usr", "own"):
        binding(tmp_path / place, "")
    old = tmp_path / "opt/rocm-4.5.0/rocm_smi/bindings/rsmiBindings.py"
    old.parent.mkdir(parents=True)
    old.write_text("")
    (tmp_path / "opt/rocm").symlink_to("rocm-6.9.0")
    expected = [
        *("own", "opt/rocm-6.9.0", "opt/rocm-6.10.0", "opt/rocm-5.7.1", "opt/rocm-4.5.0", "usr"),
    ]
    found = binding_files({"ROCM_PATH": str(tmp_path / "own")}, str(tmp_path))
    assert expected == [str(Path(path).relative_to(tmp_path).parents[2]) for path in found]


def test_nothing_installed(tmp_path: Path) -> None:
    """The reason says where was looked, the remedy what to install."""
    output, result = load(tmp_path)
    assert ("", "ROCm SMI: no rsmiBindings.py in $ROCM_PATH, /opt/rocm*, /usr/libexec") == (
        output,
        result["reason"],
    )
    assert "rocm-smi-lib" in result["remedy"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("print('Unable to load'); exit()", "SystemExit None Unable to load"),
        ("print('\\33[33mcolour\\33[0m'); raise OSError('no file')", "OSError no file colour"),
        ("def initRsmiBindings(silent=False): exit()", "SystemExit None"),
        ("import no_such_module", "ModuleNotFoundError No module named 'no_such_module'"),
        ("rocmsmi = ", "SyntaxError"),
        ("", "AttributeError module 'rsmiBindings' has no attribute 'rocmsmi'"),
    ],
)
def test_whatever_the_binding_file_does_is_a_reason(tmp_path: Path, text: str, seen: str) -> None:
    """It prints and exits where it can't load the library; what it printed is in the reason."""
    path = binding(tmp_path / "opt/rocm", text)
    output, result = load(tmp_path)
    assert "" == output
    assert result["reason"].startswith(f"ROCm SMI: {path.resolve()}: {seen}")


def test_a_broken_version_does_not_hide_an_older_one(tmp_path: Path) -> None:
    """The next binding file is tried, and imported anew."""
    binding(tmp_path / "opt/rocm-6.4.0", "exit()")
    binding(tmp_path / "opt/rocm-6.3.0", "rocmsmi = object()")
    _, result = load(tmp_path)
    assert str(tmp_path.resolve() / "opt/rocm-6.3.0/lib/librocm_smi64.so.1") == result["path"]


def test_a_binding_file_without_a_library_is_not_imported(tmp_path: Path) -> None:
    """AMD's file would search all of /opt."""
    path = binding(tmp_path / "opt/rocm", "raise AssertionError('imported')")
    (tmp_path / "opt/rocm/lib/librocm_smi64.so.1").unlink()
    _, result = load(tmp_path)
    assert f"ROCm SMI: no library at librocm_smi64.so* for {path.resolve()}" == result["reason"]


def test_amd_smi_in_the_process_is_refused(tmp_path: Path) -> None:
    """Both libraries in one process corrupt each other's memory (ROCm#5473)."""
    binding(tmp_path / "opt/rocm", "rocmsmi = object()")
    library = tmp_path / "libamd_smi.so"
    subprocess.run(
        ["gcc", "-shared", "-o", str(library), "-x", "c", "/dev/null"], check=True, timeout=60
    )
    _, result = load(tmp_path, LD_PRELOAD=str(library))
    assert (
        "ROCm SMI: libamd_smi is loaded in this process, and the two corrupt each other"
        == (result["reason"])
    )


def test_locks_between_processes_are_off(tmp_path: Path, start: Start) -> None:
    """A killed poller must not leave a lock in /dev/shm behind (rocm_smi_lib#88)."""
    source = start("trixie", Node.create(tmp_path / "tree", "MI210", 1))
    assert "1" == source.hello["mutex"]
