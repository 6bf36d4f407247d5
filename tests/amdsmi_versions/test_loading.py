"""Which wrapper and library are used together, and what is said of those that aren't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amdsmi_versions import standin
from tests.amdsmi_versions.conftest import Run
from tests.kernel.packages import amdsmi_wheel, suite_root

Home = Callable[[str], Path]

REPORTED = [
    ("6.1.2", "24.5.1+c5106a9", "24.5.2.0"),
    ("6.2.4", "24.6.2+2b02a07", "24.6.2.0"),
    ("6.3.3", "24.7.1+0012a68", "24.7.1.0"),
    ("6.3.3", "24.7.1+8dc45db", "25.1.0.0"),
    ("6.4.3", "25.3.0+ede62f2", "25.3.0"),
    ("6.4.3", "25.4.2+aca1101", "25.4.0"),
    ("7.0.2", "26.0.2+39589fda", "26.0.2"),
]
"""Pairs as `amd-smi version` shows them in public reports: ROCm, wrapper, library."""


def package(version: str) -> Path:
    """Give the folder of a wrapper from PyPI."""
    return amdsmi_wheel(version) / "amdsmi"


def newest() -> Path:
    """Give the folder of the wrapper of 10.1, from Debian."""
    return suite_root("sid").rocm.resolve() / "share/amd_smi/amdsmi"


def relabelled(source: Path, target: Path, version: str) -> None:
    """Copy a wrapper that then says another version of itself, as one in an installed ROCm does."""
    target.mkdir(parents=True)
    for file in source.glob("*.py"):
        (target / file.name).write_text(file.read_text())
    (target / "_version.py").write_text(f'__version__ = "{version}"\n__commit__ = "unknown"\n')


class TestPairs:
    """A wrapper and a library that belong together."""

    @pytest.mark.parametrize("version", standin.NUMBERS)
    def test_of_an_installed_rocm_are_found_by_its_path(
        self, version: str, home: Home, run: Run
    ) -> None:
        """Both halves are reported, with the files that they come from."""
        loaded = run(ROCM_PATH=str(home(version)))["loaded"]

        number = ".".join(standin.NUMBERS[version].split(".")[:3])
        assert number == loaded["library_version"]
        assert str(home(version) / "lib/libamd_smi.so") == loaded["library_path"]
        assert str(home(version) / "share/amd_smi/amdsmi") == loaded["wrapper_path"]
        assert version.startswith(loaded["wrapper_version"])

    @pytest.mark.parametrize(("rocm", "wrapper", "library"), REPORTED)
    def test_need_not_have_the_same_number(
        self, rocm: str, wrapper: str, library: str, tmp_path: Path, run: Run
    ) -> None:
        """AMD numbers the two halves of one release apart; their structures are what counts."""
        relabelled(package(rocm), tmp_path / "rocm/share/amd_smi/amdsmi", wrapper)
        standin.build(package(rocm), tmp_path / "rocm/lib/libamd_smi.so", library)

        loaded = run(ROCM_PATH=str(tmp_path / "rocm"))["loaded"]

        assert wrapper == loaded["wrapper_version"]
        assert ".".join(library.split(".")[:3]) == loaded["library_version"]

    def test_of_releases_to_come_are_known_by_their_common_number(
        self, tmp_path: Path, run: Run
    ) -> None:
        """Of a release that this exporter doesn't know, AMD's own pair is accepted."""
        relabelled(newest(), tmp_path / "rocm/share/amd_smi/amdsmi", "28.3.1+abc")
        library = tmp_path / "rocm/lib/libamd_smi.so.27"
        standin.build(newest(), library, "28.3.0", told_always=True)

        loaded = run(ROCM_PATH=str(tmp_path / "rocm"))["loaded"]

        expected = ("28.3.1+abc", "28.3.0")
        assert expected == (loaded["wrapper_version"], loaded["library_version"])

    def test_are_found_in_order_of_version(self, tmp_path: Path, run: Run) -> None:
        """Without a path and a plain /opt/rocm, the newest of several ROCms is used."""
        older, newer = "6.4.3", "7.0.2"
        for name, version in (("rocm-6.4.3", older), ("rocm-6.10.0", newer)):
            standin.rocm(tmp_path / "opt" / name, package(version), standin.NUMBERS[version])

        assert newer == run()["loaded"]["wrapper_version"]

    def test_leave_the_environment_as_it_was_but_for_the_locks(self, home: Home, run: Run) -> None:
        """The vendor's ROCM_PATH and ROCM_HOME are lent; no lock is shared with other processes."""
        answer = run(
            ROCM_PATH=str(home("7.0.2")),
            ROCM_HOME="/elsewhere",
            AMDSMI_MUTEX_CROSS_PROCESS="1",
        )

        expected = {
            "ROCM_PATH": str(home("7.0.2")),
            "ROCM_HOME": "/elsewhere",
            "RSMI_MUTEX_THREAD_ONLY": "1",
            "AMDSMI_MUTEX_CROSS_PROCESS": None,
        }
        assert expected == answer["environment"]
        assert str(home("7.0.2") / "lib/libamd_smi.so") == answer["loaded"]["library_path"]


class TestMismatches:
    """A wrapper and a library of different releases."""

    @pytest.mark.parametrize(
        ("wrapper", "made_for", "number", "rocm"),
        [
            ("7.0.2", "6.1.2", "24.5.2", "6.1"),
            ("6.1.2", "7.0.2", "26.0.2", "7.0"),
            ("5.7.0", "6.0.2", "23.4.2", "6.0"),
            ("6.3.3", "7.0.2", "26.0.2", "7.0"),
            ("6.3.3", "6.4.3", "25.5.1", "6.4"),
        ],
    )
    def test_are_refused_naming_both(
        self, wrapper: str, made_for: str, number: str, rocm: str, tmp_path: Path, run: Run
    ) -> None:
        """The first three miss a symbol; the last two import, and would corrupt memory."""
        standin.install(tmp_path / "rocm", package(wrapper))
        library = tmp_path / "rocm/lib/libamd_smi.so"
        standin.build(package(made_for), library, standin.NUMBERS[made_for])

        answer = run(ROCM_PATH=str(tmp_path / "rocm"))

        told = "of unknown version" if wrapper == "5.7.0" else wrapper
        folder = tmp_path / "rocm/share/amd_smi/amdsmi"
        begins = (
            f"AMD SMI can't be used: the wrapper {told} at {folder} does not match the library "
            f"{number} at {library}"
        )
        assert begins == answer["reason"][: len(begins)]
        assert f"install the Python package amdsmi of ROCm {rocm}," in answer["remedy"]

    def test_with_the_newest_library_are_refused(self, tmp_path: Path, run: Run) -> None:
        """10.1 has lost symbols that every older wrapper asks for; the missing one is named."""
        standin.install(tmp_path / "rocm", package("6.1.2"))
        library = tmp_path / "rocm/lib/libamd_smi.so"
        standin.build(newest(), library, "27.1.0", told_always=True)

        reason = run(ROCM_PATH=str(tmp_path / "rocm"))["reason"]

        assert "the wrapper 6.1.2 at" in reason
        assert f"does not match the library 27.1.0 at {library}, which lacks amdsmi_" in reason

    def test_give_way_to_a_package_that_matches(self, tmp_path: Path, run: Run) -> None:
        """The environment's wrapper is used over the ROCm's library, if they belong together."""
        standin.install(tmp_path / "rocm", package("7.0.2"))
        library = tmp_path / "rocm/lib/libamd_smi.so"
        standin.build(package("6.1.2"), library, "24.5.2.0")

        loaded = run(ROCM_PATH=str(tmp_path / "rocm"), wrapper=amdsmi_wheel("6.1.2"))["loaded"]

        assert str(package("6.1.2")) == loaded["wrapper_path"]
        assert str(library) == loaded["library_path"]

    def test_are_all_listed(self, tmp_path: Path, run: Run) -> None:
        """If nothing matches, the reason goes through every wrapper that was tried."""
        standin.install(tmp_path / "rocm", package("7.0.2"))
        standin.build(package("6.1.2"), tmp_path / "rocm/lib/libamd_smi.so", "24.5.2.0")

        reason = run(ROCM_PATH=str(tmp_path / "rocm"), wrapper=amdsmi_wheel("6.3.3"))["reason"]

        assert f"the wrapper 7.0.2 at {tmp_path / 'rocm/share/amd_smi/amdsmi'} does" in reason
        assert f"the wrapper 6.3.3 at {package('6.3.3')} does" in reason


class TestMissing:
    """What AMD SMI needs is not there."""

    def test_everything(self, run: Run) -> None:
        """Without any wrapper the remedy is to install one."""
        answer = run()

        assert answer["reason"].startswith("AMD SMI is not installed")
        assert "amd-smi-lib" in answer["remedy"]

    @pytest.mark.parametrize("version", [*standin.NUMBERS, "10.1"])
    def test_library(self, version: str, tmp_path: Path, run: Run) -> None:
        """Each release says so its own way: KeyError and a text, OSError, OSError at first call."""
        standin.install(tmp_path / "rocm", newest() if version == "10.1" else package(version))

        answer = run(ROCM_PATH=str(tmp_path / "rocm"))

        folder = tmp_path / "rocm/share/amd_smi/amdsmi"
        assert f"the wrapper at {folder} can't be imported, or finds no" in answer["reason"]
        assert "cannot open shared object file" in answer["reason"]
        assert "set ROCM_PATH" in answer["remedy"]

    def test_driver(self, tmp_path: Path, run: Run) -> None:
        """Status 34 of an older library, which doesn't tell its version without a driver."""
        standin.install(tmp_path / "rocm", package("6.1.2"))
        library = tmp_path / "rocm/lib/libamd_smi.so"
        standin.build(package("6.1.2"), library, "24.5.2.0", init_status=34)

        answer = run(ROCM_PATH=str(tmp_path / "rocm"), wrapper=amdsmi_wheel("6.1.2"))

        expected = {
            "reason": "AMD SMI: the amdgpu driver is not loaded (status 34)",
            "remedy": "modprobe amdgpu",
        }
        assert expected == answer

    def test_peace_from_the_other_library(self, home: Home, tmp_path: Path, run: Run) -> None:
        """ROCm SMI preloaded into the same process corrupts memory: neither is used."""
        other = tmp_path / "librocm_smi64.so.1"
        standin.build(package("6.1.2"), other, "0")

        answer = run(ROCM_PATH=str(home("6.1.2")), LD_PRELOAD=str(other))

        assert f"{other} is in the same process" in answer["reason"]
        assert "out of LD_PRELOAD" in answer["remedy"]
