"""Fetch AMD's libraries and other tools into a cache folder, without root and without installing.

Debian packages are downloaded with an apt state of our own, so that neither the machine's sources
nor its package lists are touched, and unpacked with ``dpkg-deb -x``.  Every result is a folder that
appears by one rename, so a reader never sees half of it; a lock file keeps two processes from doing
the same work.  With a filled cache no command is run at all.

``python -m tests.kernel.packages`` fetches everything that the test-suite uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "SUITES",
    "WHEELS",
    "FetchError",
    "SuiteRoot",
    "amdsmi_wheel",
    "build_shim",
    "cache_dir",
    "debian_tool",
    "host_suite",
    "suite_root",
    "umockdev_preload",
]

SUITES: tuple[str, ...] = ("bookworm", "trixie", "sid")
"""Debian suites whose libraries are used, oldest first."""

WHEELS: tuple[str, ...] = ("5.7.0", "6.0.2", "6.1.2", "6.2.4", "6.3.3", "6.4.3", "7.0.2")
"""Versions of the ``amdsmi`` project on PyPI that :func:`main` fetches: the last of each series."""

_TOP_PACKAGES = {
    "bookworm": ("rocm-smi",),
    "trixie": ("rocm-smi", "amd-smi"),
    "sid": ("rocm-smi", "amd-smi"),
}
_COMMON_PACKAGES = ("libc6", "libstdc++6", "libgcc-s1")
_LAYOUT = 3  # part of the folder names: raise it when what is unpacked changes

MIRROR_VARIABLE = "AMDGPU_EXPORTER_DEBIAN_MIRROR"
CACHE_VARIABLE = "AMDGPU_EXPORTER_CACHE"


class FetchError(RuntimeError):
    """A package could not be fetched or unpacked; the text says which and why."""


@dataclass(frozen=True, slots=True)
class SuiteRoot:
    """One suite's unpacked libraries and what is in them."""

    suite: str
    root: Path
    """The unpacked packages, laid out as below ``/``."""
    loader: Path
    """The suite's ``ld.so``: a program started through it uses the suite's C library."""
    library_dirs: tuple[Path, ...]
    """Folders for ``ld.so --library-path``."""
    rocm: Path
    """A folder laid out like ``/opt/rocm``: ``lib``, ``share/amd_smi``, ``libexec/rocm_smi``."""
    versions: dict[str, str]
    """Debian version of every unpacked package."""

    def upstream(self, package: str) -> str | None:
        """The upstream version of a package, ``6.1.2`` for ``6.1.2+ds-2``; None if it is absent."""
        version = self.versions.get(package)
        if version is None:
            return None
        version = version.split(":", 1)[-1].rsplit("-", 1)[0]
        return re.split(r"[+~]", version, maxsplit=1)[0]

    @property
    def amd_smi(self) -> str | None:
        """Upstream version of AMD SMI, None where the suite has none."""
        return self.upstream("amd-smi")

    @property
    def rocm_smi(self) -> str | None:
        """Upstream version of ROCm SMI."""
        return self.upstream("rocm-smi")

    @property
    def rocm_smi_cli(self) -> Path:
        """AMD's ``rocm_smi.py`` command-line tool."""
        return self.rocm / "libexec" / "rocm_smi" / "rocm_smi.py"

    @property
    def amd_smi_cli(self) -> Path:
        """AMD's ``amd-smi`` command-line tool (needs ``argcomplete`` and ``PyYAML``)."""
        return self.rocm / "libexec" / "amdsmi_cli" / "amdsmi_cli.py"


# ------------------------------------------------------------------------------------ the cache


def cache_dir() -> Path:
    """The cache folder, in ``$AMDGPU_EXPORTER_CACHE`` or ``<repository>/.cache``."""
    configured = os.environ.get(CACHE_VARIABLE)
    path = Path(configured) if configured else Path(__file__).resolve().parents[2] / ".cache"
    path = path / "kernel"
    path.mkdir(parents=True, exist_ok=True)
    ignore = path / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")  # whatever the repository ignores, this folder stays out of it
    return path.resolve()


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Hold the cache's lock: other processes and threads wait here until the work is done."""
    with open(cache_dir() / f".{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fill(target: Path, build: Callable[[Path], None], lock: str) -> Path:
    """Return ``target``, first making it with ``build(temporary folder)`` if it isn't there."""
    if target.exists():
        return target
    with _locked(lock):
        if target.exists():  # another process made it while we waited
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}.*"):  # of a process that was killed
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            build(temporary)
            temporary.chmod(0o755)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return target


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """Run a command and return its output; a failure becomes a FetchError with its last words."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False
        )
    except FileNotFoundError as error:
        raise FetchError(f"{command[0]} is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{command[0]} did not end within {error.timeout:.0f} s") from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise FetchError(f"{' '.join(command[:1])} failed with status {done.returncode}: {words}")
    return done.stdout


# ------------------------------------------------------------------------------------ Debian


def host_suite() -> str:
    """The Debian suite of this machine, from ``/etc/os-release``."""
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=\"?([a-z]+)", text, re.MULTILINE)
    if found is None or not re.search(r"^ID=\"?debian", text, re.MULTILINE):
        raise FetchError("this machine is no Debian: set up the simulated kernel on a Debian host")
    return found[1]


def _mirror() -> str:
    """The archive that this machine's apt already uses, so that no address stands in this file."""
    configured = os.environ.get(MIRROR_VARIABLE)
    if configured:
        return configured
    listing = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    for line in listing.splitlines():
        if re.search(r"/debian/?$", line):
            return line
    raise FetchError(f"no Debian archive in this machine's apt sources: set {MIRROR_VARIABLE}")


def _keyring() -> Path:
    folder = Path("/usr/share/keyrings")
    for name in ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp"):
        if (folder / name).exists():
            return folder / name
    raise FetchError("the package debian-archive-keyring is not installed on this machine")


class _Apt:
    """apt with a state folder of its own, bound to one suite."""

    def __init__(self, suite: str, state: Path) -> None:
        for folder in ("lists/partial", "cache/archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        source = f"deb [signed-by={_keyring()}] {_mirror()} {suite} main\n"
        (state / "sources.list").write_text(source)
        (state / "status").write_text("")  # nothing is installed, as this state sees it
        self._options = [
            f"-oDir::Etc::sourcelist={state}/sources.list",
            "-oDir::Etc::sourceparts=-",
            f"-oDir::State::lists={state}/lists",
            f"-oDir::State::status={state}/status",
            f"-oDir::Cache={state}/cache",
            "-oAcquire::Languages=none",
            # sid's copy on a mirror may be older than its release file allows
            "-oAcquire::Check-Valid-Until=false",
            "-oAPT::Sandbox::User=root",
            "-oDebug::NoLocking=1",
        ]
        self._suite = suite
        self._run("apt-get", "-qq", "update")

    def _run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        try:
            return _run([program, *self._options, *arguments], cwd)
        except FetchError as error:
            raise FetchError(f"Debian {self._suite}: {error}") from error

    def libraries(self, packages: Sequence[str]) -> list[str]:
        """The packages and all library packages that they need, directly or not."""
        seen = dict.fromkeys(packages)
        level = list(packages)
        while level:
            listing = self._run("apt-cache", "-i", "depends", *level)
            level = []
            for line in listing.splitlines():
                found = re.match(r"\s+(?:Pre)?Depends: (lib[^\s<>]+)$", line)
                name = found[1].split(":")[0] if found else ""
                if name and name not in seen and not name.startswith(("libpython", "libjs-")):
                    seen[name] = None
                    level.append(name)
        # -dev packages lead to the libraries (libamd-smi-dev does) but aren't needed themselves
        return [name for name in seen if not name.endswith("-dev")]

    def unpack(self, packages: Sequence[str], root: Path) -> dict[str, str]:
        """Download the packages, unpack them below ``root`` and return their versions."""
        versions = {}
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=".debs.") as name:
            debs = Path(name)
            self._run("apt-get", "-qq", "download", *packages, cwd=debs)
            for deb in sorted(debs.glob("*.deb")):
                shown = _run(["dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(deb)])
                package, version = shown.split()
                versions[package] = version
                _run(["dpkg-deb", "-x", str(deb), str(root)])
        return versions


def _link(link: Path, target: Path) -> None:
    """Make a relative symbolic link, so that the folder can still be renamed."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))


def _rocm_view(root: Path, view: Path) -> None:
    """Lay out what a suite has the way that ``/opt/rocm`` has it."""
    (view / "lib").mkdir(parents=True)
    for stem in ("libamd_smi.so", "librocm_smi64.so"):
        found = sorted((root / "usr/lib").glob(f"**/{stem}.*"))
        for library in found:
            _link(view / "lib" / library.name, library)
        if found:
            # AMD's wrappers ask for the unversioned name, which Debian keeps in its -dev packages;
            # some look for it beside the library, others in ROCm's own folder
            _link(found[0].parent / stem, found[0])
            _link(view / "lib" / stem, found[0])
    # ROCm SMI 6.4 opens libdrm by the names of its -dev packages, which any ROCm node has
    for library in (root / "usr/lib").glob("*/libdrm*.so.[0-9]"):
        _link(library.with_suffix(""), library)
    for name, path in (
        ("share/amd_smi", "usr/share/amd_smi"),
        ("libexec/rocm_smi", "usr/libexec/rocm_smi"),
        ("libexec/amdsmi_cli", "usr/libexec/amdsmi_cli"),
    ):
        if (root / path).exists():
            _link(view / name, root / path)


def suite_root(suite: str) -> SuiteRoot:
    """The unpacked AMD libraries of a Debian suite, fetched on first use."""
    if suite not in _TOP_PACKAGES:
        raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)}")

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".apt.") as state:
            apt = _Apt(suite, Path(state))
            names = apt.libraries([*_TOP_PACKAGES[suite], *_COMMON_PACKAGES])
            (folder / "root").mkdir()
            versions = apt.unpack(names, folder / "root")
        _rocm_view(folder / "root", folder / "rocm")
        (folder / "versions.json").write_text(json.dumps(versions, indent=1, sort_keys=True))

    folder = _fill(cache_dir() / f"{suite}-{_LAYOUT}", build, suite)
    root = folder / "root"
    # libc6 stands below /lib before trixie and below /usr/lib since
    loaders = sorted(root.glob("usr/lib/*-linux-gnu/ld-linux*.so.*"))
    loaders += sorted(root.glob("lib/*-linux-gnu/ld-linux*.so.*"))
    if not loaders:
        raise FetchError(f"no ld.so in {root}: remove {folder} and fetch it again")
    triplet = loaders[0].parent.name
    places = (f"usr/lib/{triplet}", f"lib/{triplet}", "usr/lib")
    return SuiteRoot(
        suite=suite,
        root=root,
        loader=loaders[0],
        library_dirs=tuple(root / place for place in places if (root / place).is_dir()),
        rocm=folder / "rocm",
        versions=json.loads((folder / "versions.json").read_text()),
    )


def debian_tool(*packages: str, suite: str | None = None) -> Path:
    """Unpack exactly these packages of this machine's suite and return the root folder.

    ``debian_tool("prometheus") / "usr/bin/promtool"`` then runs as it is.
    """
    if not packages:
        raise ValueError("name at least one package")
    chosen = suite or host_suite()

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".apt.") as state:
            _Apt(chosen, Path(state)).unpack(packages, folder)

    name = "+".join(sorted(packages))
    return _fill(cache_dir() / f"tools-{chosen}" / name, build, "tools")


def umockdev_preload() -> Path:
    """umockdev's preload library, which shows the tree's ``sys`` and ``dev`` in place of the real.

    It is always the oldest suite's, since it must load into every suite's C library.
    """
    root = debian_tool("umockdev", suite=SUITES[0])
    found = sorted(root.glob("usr/lib/*/libumockdev-preload.so.0"))
    if not found:
        raise FetchError(f"no libumockdev-preload.so.0 in {root}")
    return found[0]


def build_shim() -> Path:
    """Compile ``shim.c`` into the cache; it is compiled anew when its text changes."""
    source = Path(__file__).with_name("shim.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]

    def build(folder: Path) -> None:
        flags = ["-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
        output = str(folder / "shim.so")
        _run([os.environ.get("CC", "gcc"), *flags, "-o", output, str(source), "-ldl", "-lpthread"])

    return _fill(cache_dir() / f"shim-{digest}", build, "shim") / "shim.so"


# ------------------------------------------------------------------------------------ PyPI


def amdsmi_wheel(version: str) -> Path:
    """The Python files of one exact ``amdsmi`` version from PyPI.

    The folder holds the package ``amdsmi``, to be put on ``PYTHONPATH`` like ``share/amd_smi``.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.post\d+)?", version):
        raise ValueError(f"{version!r} is no exact version")

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pip.") as name:
            download = Path(name)
            # a source archive is built into a wheel by pip; both end as one wheel here
            base = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "-w", name]
            _run([*base, f"amdsmi=={version}"])
            wheels = list(download.glob("amdsmi-*.whl"))
            if not wheels:
                raise FetchError(f"pip brought no wheel of amdsmi {version}")
            with zipfile.ZipFile(wheels[0]) as archive:
                archive.extractall(folder)
        if not (folder / "amdsmi" / "__init__.py").exists():
            raise FetchError(f"amdsmi {version} has no package amdsmi in it")

    return _fill(cache_dir() / "wheels" / f"amdsmi-{version}", build, "wheels")


def main() -> int:
    """Fetch everything that the tests use and say what it is."""
    try:
        for suite in SUITES:
            found = suite_root(suite)
            _say(f"{suite}: AMD SMI {found.amd_smi or '-'}, ROCm SMI {found.rocm_smi or '-'}")
        _say(f"umockdev: {umockdev_preload()}")
        _say(f"shim: {build_shim()}")
        _say(f"prometheus: {debian_tool('prometheus')}")
        for version in WHEELS:
            _say(f"amdsmi {version}: {amdsmi_wheel(version)}")
    except FetchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
