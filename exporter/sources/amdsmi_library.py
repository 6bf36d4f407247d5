"""Finding AMD SMI: a Python wrapper and a C library that belong together.

The wrapper passes structures whose sizes changed with nearly every release of ROCm. A wrapper
over another release's library mostly fails to import, since it lacks symbols; but some pairs
import, and the library then writes past the end of the wrapper's structures (6.3 over 6.4 or
7.0). So a pair is used only when both are known to agree, before any call that takes one of
those structures.

What a library expects is known from its version, what a wrapper passes from its own ctypes
declarations. The wrapper's version alone doesn't tell: on PyPI it is ROCm's (7.0.2), in an
installed ROCm AMD SMI's own (26.0.2), in ROCm 5.7 and 6.0 there is none, and for ROCm 6.3.3 it is
24.7.1 while the library says 25.1.0.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from exporter.sources.session import UnavailableError

PACKAGE = "amdsmi"
_NOT_INITIALISED = 32
_NO_DRIVER = 34
_INIT_AMD_GPUS = 2  # never CPUs: esmi crashes (rocm-systems#6898)

Number = tuple[int, ...]


class _Layout(NamedTuple):
    """The structures of one release of ROCm, and the library versions that have them.

    The sizes were taken from the wrappers themselves: PyPI 5.7.0 to 7.0.2, Debian's for 10.1.
    """

    rocm: str
    first: Number
    last: Number
    sizes: tuple[int, ...]


_STRUCTURES = (
    "asic_info",
    "board_info",
    "error_count",
    "gpu_metrics",
    "pcie_info",
    "power_info",
    "proc_info",
    "vram_info",
)
# 5.7 and 6.0 share their range: no wrapper of one finds all its symbols in the other's library.
_LAYOUTS = (
    _Layout("5.7", (23, 0), (24, 3), (128, 272, 32, 96, 32, 64, 224, 16)),
    _Layout("6.0", (23, 0), (24, 3), (256, 257, 32, 352, 32, 68, 224, 16)),
    _Layout("6.1.0", (24, 4), (24, 4), (256, 384, 32, 424, 512, 68, 224, 16)),
    _Layout("6.1", (24, 5), (24, 5), (256, 384, 64, 424, 512, 68, 224, 16)),
    _Layout("6.2", (24, 6), (24, 6), (448, 768, 64, 424, 512, 68, 224, 64)),
    _Layout("6.3", (24, 7), (25, 2), (456, 768, 64, 1832, 512, 68, 224, 64)),
    _Layout("6.4", (25, 3), (25, 99), (896, 1536, 64, 2368, 512, 40, 704, 64)),
    _Layout("7.0", (26, 0), (26, 0), (896, 1792, 64, 4544, 512, 192, 704, 584)),
    _Layout("10.1", (27, 1), (27, 1), (896, 1792, 64, 4736, 512, 192, 704, 584)),
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """AMD SMI, imported and found to be of one piece; not initialised.

    Attributes:
        api: the package `amdsmi`.
        wrapper_version: what the package says of itself, or the ROCm whose structures it has.
        library_version: what the C library says, for example "27.1.0".
        library_path: the C library's file.
        wrapper_path: the package's folder.
    """

    api: ModuleType
    wrapper_version: str
    library_version: str
    library_path: str
    wrapper_path: str


class _NoDriverError(UnavailableError):
    """Another copy of AMD SMI would not help."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A wrapper: its package's folder, and the ROCm in which it shall look for the library."""

    folder: Path
    rocm: Path


def load(environment: MutableMapping[str, str] = os.environ, root: str = "/") -> Loaded:
    """Import the first AMD SMI whose wrapper and library belong together.

    The installed ROCm's copy comes first, the package of this Python environment last.

    Args:
        environment: where ROCm may be named, and where the vendor's own settings are made; the
            vendor's code reads `os.environ`, whatever is given here.
        root: the folder that stands for `/` when looking for an installed ROCm.

    Raises:
        UnavailableError: there is no usable copy; the reason names each that was tried.
    """
    # A poller that is killed inside the library must not leave a lock behind for all others.
    # Libraries up to 7.0 know the first, later ones the second; 6.1.2 knows neither and does.
    environment["RSMI_MUTEX_THREAD_ONLY"] = "1"
    environment.pop("AMDSMI_MUTEX_CROSS_PROCESS", None)
    candidates = _candidates(environment, Path(root))
    failures: list[UnavailableError] = []
    for candidate in candidates:
        try:
            with _rocm_named(environment, candidate.rocm), _stdout_to_stderr():
                return _load(candidate)
        except _NoDriverError:
            raise
        except UnavailableError as error:
            failures.append(error)
            _forget()
    if not failures:
        raise UnavailableError(
            "AMD SMI is not installed: neither below ROCM_PATH, /opt/rocm* or /usr, nor in this "
            "Python environment",
            "install the package amd-smi-lib of your ROCm, or this exporter's extra 'amdsmi'",
        )
    reasons = "; ".join(dict.fromkeys(failure.reason for failure in failures))
    raise UnavailableError(f"AMD SMI can't be used: {reasons}", failures[0].remedy)


def _candidates(environment: MutableMapping[str, str], root: Path) -> list[_Candidate]:
    """Every wrapper that there is, in order of preference, each folder once."""
    versioned = sorted(root.glob("opt/rocm-*"), key=lambda path: _parts(path.name), reverse=True)
    homes = [
        Path(environment[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environment.get(name)
    ]
    homes += [root / "opt/rocm", *versioned]
    found = [_Candidate(home / "share/amd_smi" / PACKAGE, home) for home in [*homes, root / "usr"]]
    found.append(_Candidate(root / "usr/lib/python3/dist-packages" / PACKAGE, root / "usr"))
    spec = importlib.util.find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        home = next((home for home in homes if home.is_dir()), root / "opt/rocm")
        found.append(_Candidate(Path(spec.origin).parent, home))
    present: dict[Path, _Candidate] = {}
    for candidate in found:
        if (candidate.folder / "__init__.py").is_file():
            present.setdefault(candidate.folder.resolve(), candidate)
    return list(present.values())


@contextlib.contextmanager
def _rocm_named(environment: MutableMapping[str, str], home: Path) -> Iterator[None]:
    """Name one ROCm in the environment while its wrapper looks for the library.

    5.7 to 6.1 fail without ROCM_PATH, and 6.4 on prefer ROCM_HOME to it.
    """
    before = {name: environment.get(name) for name in ("ROCM_PATH", "ROCM_HOME")}
    environment.update(dict.fromkeys(before, str(home)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Keep what the vendor's C code prints away from standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _load(candidate: _Candidate) -> Loaded:
    """Import one candidate and compare its two halves."""
    api = _import(candidate)
    wrapper: Any = sys.modules[f"{PACKAGE}.amdsmi_wrapper"]
    library = wrapper._libraries["libamd_smi.so"]
    if not isinstance(library, ctypes.CDLL):  # 10.1 imports without a library
        try:
            library.amdsmi_init(_INIT_AMD_GPUS)
        except OSError as error:
            raise _no_library(candidate, str(error)) from error
    path = _file_of(library)
    other = next((name for name in _mapped() if "librocm_smi64" in name), None)
    if other is not None:
        raise UnavailableError(
            f"{other} is in the same process as {path}, which corrupts memory",
            "take librocm_smi64 out of LD_PRELOAD",
        )
    sizes = tuple(_size(wrapper, name) for name in _STRUCTURES)
    version = _wrapper_version(candidate.folder, sizes)
    library_version = _version(library)
    if not _match(version, sizes, library_version):
        raise _mismatch(candidate, version, library_version, path)
    return Loaded(api, version, library_version, path, str(candidate.folder))


def _import(candidate: _Candidate) -> ModuleType:
    """Import the wrapper in the candidate's folder, wherever Python itself would look."""
    file = str(candidate.folder / "__init__.py")
    loader = SourceFileLoader(PACKAGE, file)
    spec = ModuleSpec(PACKAGE, loader, origin=file, is_package=True)
    spec.submodule_search_locations = [str(candidate.folder)]
    sys.modules[PACKAGE] = module = importlib.util.module_from_spec(spec)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            loader.exec_module(module)
    except KeyError as error:  # up to 7.0: why there is no library is printed, not raised
        raise _no_library(candidate, printed.getvalue() or f"KeyError: {error}") from error
    except AttributeError as error:
        raise _symbol_missing(candidate, error) from error
    except Exception as error:
        raise _no_library(candidate, f"{type(error).__name__}: {error}") from error
    return module


def _forget() -> None:
    """Take a refused wrapper out of the list of modules."""
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]


def _no_library(candidate: _Candidate, detail: str) -> UnavailableError:
    return UnavailableError(
        f"the wrapper at {candidate.folder} can't be imported, or finds "
        f"no libamd_smi.so ({' '.join(detail.split())[:400]})",
        "install the package amd-smi-lib of your ROCm, or set ROCM_PATH to where it is installed",
    )


def _symbol_missing(candidate: _Candidate, error: AttributeError) -> UnavailableError:
    """A wrapper of another release than the library that it found."""
    path, _, symbol = str(error).partition(": undefined symbol: ")
    if not symbol:
        return _no_library(candidate, f"AttributeError: {error}")
    try:
        library_version = _version(ctypes.CDLL(path))
    except UnavailableError as unknown:
        library_version = f"of unknown version ({unknown.reason})"
    return _mismatch(
        candidate,
        _wrapper_version(candidate.folder, ()),
        library_version,
        f"{path}, which lacks {symbol}",
    )


def _mismatch(
    candidate: _Candidate, version: str, library_version: str, where: str
) -> UnavailableError:
    number = _number(library_version)
    rocm = next(
        (layout.rocm for layout in reversed(_LAYOUTS) if layout.first <= number <= layout.last),
        "with that library",
    )
    return UnavailableError(
        f"the wrapper {version} at {candidate.folder} does not match the library "
        f"{library_version} at {where}",
        f"install the Python package amdsmi of ROCm {rocm}, or set ROCM_PATH to the ROCm whose "
        "library shall be used",
    )


def _wrapper_version(folder: Path, sizes: tuple[int, ...]) -> str:
    """As the wrapper's `_version.py` says; before 6.1 it has none, so by its structures."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        told = re.search(r'__version__ = "([^"]+)"', (folder / "_version.py").read_text())
        if told is not None:
            return told.group(1)
    return next((layout.rocm for layout in _LAYOUTS if layout.sizes == sizes), "of unknown version")


def _size(wrapper: Any, name: str) -> int:
    structure = getattr(wrapper, f"amdsmi_{name}_t", None)
    return 0 if structure is None else ctypes.sizeof(structure)


class _VersionAnswer(ctypes.Structure):
    """amdsmi_version_t as far as all releases agree, with room for more than any has.

    The numbers before the text moved: up to 6.3 a year comes first, in 6.4 it isn't filled, and
    in 7.0 it is gone.
    """

    _fields_ = (
        ("numbers", ctypes.c_uint32 * 4),
        ("text", ctypes.c_char_p),
        ("room", ctypes.c_ubyte * 232),
    )


def _version(library: ctypes.CDLL) -> str:
    """The library's version, asked without trusting any structure of the wrapper's.

    Older libraries tell it only while initialised.
    """
    answer = _VersionAnswer()
    # subscripts, unlike attributes, give functions that the wrapper hasn't declared types for
    ask = library["amdsmi_get_lib_version"]
    status = ask(ctypes.byref(answer))
    if status == _NOT_INITIALISED:
        status = library["amdsmi_init"](ctypes.c_uint64(_INIT_AMD_GPUS))
        if status == _NO_DRIVER:
            raise _NoDriverError(
                "AMD SMI: the amdgpu driver is not loaded (status 34)", "modprobe amdgpu"
            )
        if not status:
            status = ask(ctypes.byref(answer))
            library["amdsmi_shut_down"]()
    told = re.match(rb"\d+\.\d+(\.\d+)?", answer.text or b"")
    if status or told is None:
        raise UnavailableError(
            f"{_file_of(library)} does not tell its version (status {status})",
            "see what `amd-smi version` says, and the kernel log",
        )
    return told.group().decode()


def _parts(version: str) -> Number:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _number(version: str) -> Number:
    """The first two numbers of a version, which say what structures there are."""
    return _parts(version)[:2]


def _match(version: str, sizes: tuple[int, ...], library_version: str) -> bool:
    number = _number(library_version)
    return _number(version) == number or any(
        layout.first <= number <= layout.last and layout.sizes == sizes for layout in _LAYOUTS
    )


def _mapped() -> dict[str, tuple[int, int]]:
    """The files mapped into this process, each with the range of its addresses."""
    found: dict[str, tuple[int, int]] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            low, high = (int(address, 16) for address in fields[0].split("-"))
            first, last = found.get(fields[5], (low, high))
            found[fields[5]] = (min(low, first), max(high, last))
    return found


def _file_of(library: ctypes.CDLL) -> str:
    """The file that a library was loaded from, found by the address of a function of it."""
    address = ctypes.cast(library["amdsmi_init"], ctypes.c_void_p).value or 0
    return next(
        (name for name, (low, high) in _mapped().items() if low <= address < high), library._name
    )
