"""Reading kernel files: one system call each way, and errors turned into reasons."""

from __future__ import annotations

import errno
import os
from typing import Protocol

from exporter.values import BUSY, ERROR, NOT_PERMITTED, NOT_SUPPORTED, Absent


class Files(Protocol):
    """The files of a node: the real ones, or those of a simulated node."""

    def read(self, path: str) -> str:
        """The whole text of a file.

        Raises:
            OSError: as the kernel answers.
        """

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted.

        Raises:
            OSError: as the kernel answers.
        """

    def link(self, path: str) -> str:
        """The target of a symbolic link, as it is written in it.

        Raises:
            OSError: as the kernel answers.
        """


class KernelFiles:
    """The files of this node. A sysfs attribute is at most a page, so one read is enough."""

    def read(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 1 << 16).decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def link(self, path: str) -> str:
        return os.readlink(path)


_REASONS = {
    errno.ENOENT: NOT_SUPPORTED,
    errno.ENOTDIR: NOT_SUPPORTED,
    errno.ENODATA: NOT_SUPPORTED,
    errno.EOPNOTSUPP: NOT_SUPPORTED,
    errno.EINVAL: NOT_SUPPORTED,  # xgmi_error on MI300 and newer (rocm-systems#11468)
    errno.EACCES: NOT_PERMITTED,
    errno.EPERM: NOT_PERMITTED,
    errno.EBUSY: BUSY,
    errno.EAGAIN: BUSY,
}


def absent_for(error: OSError, path: str) -> Absent:
    """The reason behind an error of the kernel, naming the file."""
    reason = _REASONS.get(error.errno or 0, ERROR)
    return Absent(reason, f"{path}: {error.strerror or error}")


def read_text(files: Files, path: str) -> str | Absent:
    """A file's text without surrounding white space, or why there is none."""
    try:
        return files.read(path).strip()
    except OSError as error:
        return absent_for(error, path)
