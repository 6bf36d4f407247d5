"""Small JSON files in the state directory: what must outlive a restart of the daemon."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class StateError(Exception):
    """Something kept can't be read or written; the message says which file, and what to do.

    Attributes:
        cause: what several files may have in common.
    """

    def __init__(self, message: str, cause: object = None) -> None:
        super().__init__(message)
        self.cause = str(cause or message)


class StateLock:
    """The right to keep something in a state directory: one daemon at a time has it.

    The directory is made where only its last part is missing: a path that is mistyped further up
    is no wish.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def take(self) -> None:
        """Get it, if it is not had already.

        Raises:
            StateError: another daemon has it, or the directory can't be used.
        """
        path = self._directory / "lock"
        if self._descriptor >= 0:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._descriptor), os.stat(path)):
                    return
            self.release()  # the directory was taken away
        try:
            with suppress(FileExistsError):
                self._directory.mkdir()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(
                f"{self._directory} can't be written ({error.strerror}): nothing outlives a "
                "restart; make it, or see to --state.directory",
                error.strerror,
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StateError(
                f"{self._directory} is another daemon's: nothing of this one is kept; give each "
                "a --state.directory of its own",
                "in use",
            ) from error
        except OSError:
            pass  # a file system without locks
        self._descriptor = descriptor

    def release(self) -> None:
        """Leave the directory to others."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_state(
    path: Path, parse: Callable[[object], T], afresh: str, *, mend: bool = True
) -> T | None:
    """What is kept in a file, None where there is no such file.

    Args:
        path: the file.
        parse: makes something of the plain data; may raise what bad data makes code raise.
        afresh: what starts afresh without it, for the message.
        mend: set a damaged file aside.

    Raises:
        StateError: it can't be read, or is damaged (and now set aside).
    """
    try:
        return parse(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(
            f"{path} can't be read ({error.strerror}): {afresh} start afresh; see to the rights "
            "of the state directory"
        ) from error
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        if not mend:
            raise StateError(f"{path} is damaged ({error}): {afresh} start afresh") from error
        aside = path.with_suffix(".damaged")
        try:
            os.replace(path, aside)
        except OSError as failure:
            raise StateError(
                f"{path} is damaged ({error}) and can't be set aside ({failure.strerror}): "
                "remove it"
            ) from failure
        raise StateError(
            f"{path} is damaged ({error}): it is now {aside.name}, and {afresh} start afresh"
        ) from error


def write_state(path: Path, text: str, lost: str) -> None:
    """Replace a file at once, so that a reader, or a crash, never sees half of it.

    Args:
        path: the file; its directory is made, but not that one's.
        text: the whole content.
        lost: what a restart then costs, for the message.

    Raises:
        StateError: it can't be written.
    """
    partial = path.with_suffix(".new")
    try:
        path.parent.mkdir(exist_ok=True)
        with open(partial, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise StateError(
            f"{path} can't be written ({error.strerror}): {lost}; see to the rights and the "
            "space of the state directory",
            error.strerror,
        ) from error
