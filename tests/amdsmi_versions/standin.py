"""Making a `libamd_smi.so` with the symbols that a wrapper asks for."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("standin.c")

NUMBERS = {
    "5.7.0": "23.2.1.0",
    "6.0.2": "23.4.2.0",
    "6.1.2": "24.5.2.0",
    "6.2.4": "24.6.3.0",
    "6.3.3": "25.1.0.0",
    "6.4.3": "25.5.1",
    "7.0.2": "26.0.2",
}
"""ROCm to what its library says of itself; of 5.7 and 6.0 the last parts are assumptions."""


def symbols(package: Path) -> list[str]:
    """The functions that the wrapper in a package's folder takes from its library."""
    text = (package / "amdsmi_wrapper.py").read_text()
    return sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", text)))


def build(
    package: Path, library: Path, version: str, *, told_always: bool = False, init_status: int = 0
) -> None:
    """Compile the library of a wrapper.

    Args:
        package: the wrapper's folder.
        library: the file to make, with the folder it lies in.
        version: what the library says of itself.
        told_always: whether it says so before it is initialised.
        init_status: what `amdsmi_init` returns.
    """
    library.parent.mkdir(parents=True, exist_ok=True)
    own = set(re.findall(r"^int (amdsmi_\w+)\(", SOURCE.read_text(), re.MULTILINE))
    stubs = "".join(f"STUB({name})\n" for name in symbols(package) if name not in own)
    (library.parent / "symbols.h").write_text(stubs)
    definitions = {
        "VERSION": f'"{version}"',
        "TOLD_ALWAYS": int(told_always),
        "INIT_STATUS": init_status,
    }
    subprocess.run(
        [
            os.environ.get("CC", "gcc"),
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
            *(f"-D{name}={value}" for name, value in definitions.items()),
            f"-I{library.parent}",
            "-o",
            library,
            SOURCE,
        ],
        check=True,
    )


def rocm(home: Path, package: Path, version: str) -> Path:
    """Lay out a ROCm with a wrapper and a library made for that wrapper."""
    install(home, package)
    build(package, home / "lib/libamd_smi.so", version)
    return home


def install(home: Path, package: Path) -> None:
    """Put a wrapper where an installed ROCm has it."""
    (home / "share/amd_smi").mkdir(parents=True)
    (home / "share/amd_smi/amdsmi").symlink_to(package)
