"""Small JSON files in the state directory: what must outlive a restart of the daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class StateError(Exception):
    """Something kept can't be read or written; the message says which file, and what to do."""


def read_state(path: Path, parse: Callable[[object], T], afresh: str) -> T | None:
    """What is kept in a file, None where there is no such file.

    Args:
        path: the file.
        parse: makes something of the plain data; may raise what bad data makes code raise.
        afresh: what starts afresh without it, for the message.

    Raises:
        StateError: it can't be read, or is damaged and now set aside.
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
        path: the file; its directory is made.
        text: the whole content.
        lost: what a restart then costs, for the message.

    Raises:
        StateError: it can't be written.
    """
    partial = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise StateError(
            f"{path} can't be written ({error.strerror}): {lost}; see to the rights and the "
            "space of the state directory"
        ) from error
