"""Start a Python command line on a simulated kernel.

The child is this machine's own Python, started through the suite's ``ld.so`` with the suite's C
library and AMD libraries before the machine's own, umockdev's library and our shim preloaded.  No
root, no mounts, no namespace.  The preloading is an option of ``ld.so`` and not an environment
variable, so programs that the child starts in turn see the real machine; AMD's command-line tools
need theirs on the simulated one (``children=True``).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.kernel.packages import SuiteRoot, build_shim, suite_root, umockdev_preload

__all__ = ["Launcher", "launcher", "tool_launcher"]


def _host_library_dirs(triplet: str) -> tuple[str, ...]:
    """Where this machine keeps the libraries of its Python and of Python's extension modules."""
    own = sysconfig.get_config_var("LIBDIR")
    places = [str(own)] if own else []
    places += [f"/usr/local/lib/{triplet}", "/usr/local/lib", f"/usr/lib/{triplet}"]
    places += [f"/lib/{triplet}", "/usr/lib64", "/lib64"]
    return tuple(place for place in dict.fromkeys(places) if Path(place).is_dir())


@dataclass(frozen=True, slots=True)
class Launcher:
    """Wraps Python command lines so that they see ``tree`` as their kernel."""

    suite: SuiteRoot
    tree: Path
    """The root folder that :class:`tests.kernel.node.Node` wrote."""
    python: str = sys.executable
    """The interpreter; a virtual environment's stays one, with its own site-packages."""
    modules: tuple[Path, ...] = ()
    """Folders put before everything on ``PYTHONPATH``: another version of AMD's wrapper, say."""
    rocm: Path | None = None
    """What ``ROCM_PATH`` shall be; the suite's own view unless given."""
    children: bool = False
    """Programs that the child starts see the simulated kernel, too."""
    extra: dict[str, str] = field(default_factory=dict)
    """More variables for :meth:`environment`."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The full argument vector that runs ``python <arguments>`` on the simulated kernel."""
        triplet = self.suite.loader.parent.name
        # ROCm's own folder comes first, as on a node whose ld.so.conf has /opt/rocm/lib
        directories = [str((self.rocm or self.suite.rocm) / "lib")]
        directories += [str(path) for path in self.suite.library_dirs]
        directories += _host_library_dirs(triplet)
        return [
            str(self.suite.loader),
            "--argv0",
            self.python,
            "--library-path",
            ":".join(directories),
            "--preload",
            self._preload(),
            self.python,
            *arguments,
        ]

    def environment(self) -> dict[str, str]:
        """Variables to add to the child's environment.

        ``ROCM_PATH`` names a folder laid out like ``/opt/rocm``, in which AMD's Python modules
        (``share/amd_smi``, ``libexec/rocm_smi``) and libraries (``lib``) are found.
        """
        added = {
            "UMOCKDEV_DIR": str(self.tree.resolve()),
            "ROCM_PATH": str(self.rocm or self.suite.rocm),
            # where the suite's libdrm finds the names of the GPUs
            "AMDGPU_ASIC_ID_TABLE_PATHS": str(self.suite.root / "usr/share/libdrm"),
        }
        if self.modules:
            folders = [str(path) for path in self.modules]
            if os.environ.get("PYTHONPATH"):
                folders.append(os.environ["PYTHONPATH"])
            added["PYTHONPATH"] = ":".join(folders)
        if self.children:
            added["LD_PRELOAD"] = self._preload()
        return {**added, **self.extra}

    @staticmethod
    def _preload() -> str:
        # Ours first: umockdev's alone gives up on /dev/dri
        return f"{build_shim()} {umockdev_preload()}"


def launcher(suite: str, tree: Path) -> Launcher:
    """A launcher for a suite by name, fetching what is missing."""
    return Launcher(suite_root(suite), tree)


def tool_launcher(suite: str, tree: Path) -> Launcher:
    """A launcher for AMD's command-line tools, which start programs such as ``cat`` themselves."""
    return replace(launcher(suite, tree), children=True)
