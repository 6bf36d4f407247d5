"""Where the time of a poll goes: profiles of all processes, summed up by part of the program."""

from __future__ import annotations

import pstats
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import exporter

Function = tuple[str, int, str]
"""File, line and name; the file of what is written in C is "~"."""
PACKAGE = Path(exporter.__file__).parent
PARTS = {
    "json": "json",
    "psutil": "psutil",
    "amdsmi": "amdsmi: the vendor's wrapper, library and the kernel",
}
"""Folders and files outside the exporter that are parts of their own."""
WAITING = ("<method 'poll' of 'select.poll' objects>",)
"""Functions whose time is nobody's."""


class Phases:
    """A profile of one process.

    Attributes:
        seconds: by part: a module of the exporter, a package, or "other". What is written in C
            counts for its callers.
        calls: how often each function of the exporter and the vendor's wrapper was called.
    """

    def __init__(self, path: Path) -> None:
        # (primitive calls, calls, own time, time with callees, the same by caller)
        stats = cast(Mapping[Function, Any], vars(pstats.Stats(str(path)))["stats"])
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        for function, (_, calls, own, _, callers) in stats.items():
            if function[2] in WAITING:
                continue
            if function[0] != "~":
                part = part_of(function)
                self.seconds[part] += own
                self.calls[f"{part}:{function[2]}"] += calls
                continue
            for caller, (_, _, share, _) in callers.items():
                self.seconds[part_of(caller)] += share


def part_of(function: Function) -> str:
    """The part of the program that a function belongs to."""
    path = Path(function[0])
    if path.is_relative_to(PACKAGE):
        return str(path.relative_to(PACKAGE).with_suffix(""))
    return next((PARTS[name] for name in path.parts if name in PARTS), "other")
