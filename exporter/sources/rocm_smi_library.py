"""Find and load the ROCm SMI library through AMD's own binding file, `rsmiBindings.py`.

The file is installed with the library and describes its structures, so the two always fit. What
it does when imported depends on the version: up to 5.6 it loads the library at once, and where it
can't it prints and calls `exit()`; from 5.7 on it gives `initRsmiBindings(silent)`, which does the
same later. Both search all of /opt for a library that is not in its place, so the search is done
here, and the file is imported only where there is a library for it.

Only to be called in the worker that is to own the library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from glob import glob
from types import ModuleType
from typing import Any

from exporter.sources.session import UnavailableError
from exporter.values import NOT_SUPPORTED, Absent

_FILE = "rsmiBindings.py"
_FOLDERS = ("libexec/rocm_smi", "rocm_smi/bindings")  # the second up to 5.1
_ROOTS = ("opt/rocm", "opt/rocm-*", "usr", "usr/local")
_LIBRARIES = ("../../lib", "../../lib/*-linux-gnu", "../../lib64", "../lib")
_NAME = "librocm_smi64.so*"
_OVERRIDE = "ROCM_SMI_LIB_PATH"  # AMD's own variable, from 5.7 on
_OTHER = "libamd_smi"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The library, loaded but not initialised.

    Attributes:
        bindings: AMD's module `rsmiBindings`: the structures and enumerations of this version.
        library: the C library, as `ctypes` has it.
        version: as the library itself tells, 7.6.0 for ROCm 6.4; or why it doesn't.
        binding_path: the binding file.
        library_path: the library.
    """

    bindings: ModuleType
    library: Any
    version: str | Absent
    binding_path: str
    library_path: str


def binding_files(environment: Mapping[str, str] = os.environ, root: str = "/") -> list[str]:
    """The binding files of this node: those of $ROCM_PATH first, then newer before older."""
    places = [environment["ROCM_PATH"]] if environment.get("ROCM_PATH") else []
    for pattern in _ROOTS:
        places += sorted(glob(os.path.join(root, pattern)), key=_numbers, reverse=True)
    found = (os.path.join(place, folder, _FILE) for place in places for folder in _FOLDERS)
    return list(dict.fromkeys(os.path.realpath(path) for path in found if os.path.isfile(path)))


def _numbers(path: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", path)]


def _library_for(binding: str, override: str | None) -> str | None:
    """The library of a binding file, or the one that the environment names for all."""
    if override:
        return override if os.path.isfile(override) else None
    for folder in _LIBRARIES:
        found = sorted(glob(os.path.join(os.path.dirname(binding), folder, _NAME)))
        if found:
            return os.path.realpath(found[0])
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Keep vendor code from our standard output; what its Python part prints is caught."""
    caught = io.StringIO()
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, 1)
        with contextlib.redirect_stdout(caught):
            yield caught
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _printable(said: str) -> str:
    """Without the escape sequences that colour a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", said)


def _import(binding: str) -> tuple[ModuleType, Any]:
    """Import the binding file and let it load its library."""
    folder = os.path.dirname(binding)
    sys.path.insert(0, folder)  # it imports its neighbour rsmiBindingsInit
    try:
        module = importlib.import_module("rsmiBindings")
    finally:
        sys.path.remove(folder)
    start = getattr(module, "initRsmiBindings", None)
    return module, module.rocmsmi if start is None else start(True)


def _version(bindings: ModuleType, library: Any) -> str | Absent:
    try:
        answer = bindings.rsmi_version_t()
        status = library.rsmi_version_get(ctypes.byref(answer))
    except AttributeError as error:
        return Absent(NOT_SUPPORTED, str(error))
    if status:
        return Absent(NOT_SUPPORTED, f"rsmi_version_get: status {status}")
    return f"{answer.major}.{answer.minor}.{answer.patch}"


def load(environment: MutableMapping[str, str] = os.environ, root: str = "/") -> Loaded:
    """Load the first library that has a binding file.

    Its locks in /dev/shm are switched off, where the version can do without; 5.2 can't.

    Args:
        environment: where ROCm may be named, and where the vendor's own settings are made; the
            vendor's code reads `os.environ`, whatever is given here.
        root: the folder that stands for `/` when looking for an installed ROCm.

    Raises:
        UnavailableError: nothing is installed, it can't be loaded, or AMD SMI is in this process.
    """
    with open("/proc/self/maps") as maps:
        if _OTHER in maps.read():
            raise UnavailableError(
                "ROCm SMI: libamd_smi is loaded in this process, and the two corrupt each other",
                "leave libamd_smi out of LD_PRELOAD",
            )
    bindings = binding_files(environment, root)
    if not bindings:
        raise UnavailableError(
            f"ROCm SMI: no {_FILE} in $ROCM_PATH, /opt/rocm*, /usr/libexec",
            "install the package rocm-smi-lib (Debian: rocm-smi), or set ROCM_PATH",
        )
    # A process-shared lock stays locked when a poller is killed while it reads (rsmi#88).
    environment["RSMI_MUTEX_THREAD_ONLY"] = "1"
    override = environment.get(_OVERRIDE)
    failures = []
    for binding in bindings:
        path = _library_for(binding, override)
        if path is None:
            failures.append(f"no library at {override or _NAME} for {binding}")
            continue
        environment[_OVERRIDE] = path  # so that the file does not search by itself
        with _quiet() as printed:
            try:
                module, library = _import(binding)
                return Loaded(module, library, _version(module, library), binding, path)
            except (Exception, SystemExit) as error:  # whatever AMD's file does, it is not ours
                said = " ".join([type(error).__name__, str(error), *printed.getvalue().split()])
                failures.append(f"{binding}: {_printable(said)[:200]}")
        for name in ("rsmiBindings", "rsmiBindingsInit"):
            sys.modules.pop(name, None)
    raise UnavailableError(
        f"ROCm SMI: {'; '.join(failures)}", f"see whether {bindings[0]} can be imported by hand"
    )
