"""A series of memory reduced to its floor: the least per bucket, at several widths of buckets.

Garbage collection, request peaks and evaluation phases go up and come back; the least memory of a
bucket that is longer than such a swing is what was not given back. Since nobody knows how long a
swing is, there are buckets of five minutes and of ever four times that, 32 of each, so that four
weeks fit into a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter.leaks.kept import whole

WIDTHS = (300, 1200, 4800, 19_200, 76_800)
"""Seconds per bucket, by level."""
BUCKETS = 32
"""How many are kept of each width."""
PAGE_BITS = 12
"""Memory is given out in pages of 4 KiB, and kept in pages here."""
LOAD_UNIT = 1000
"""Loads are kept as whole thousandths, so that kept state is the same to the last digit."""
_UNKNOWN = -1


class Level:
    """The latest buckets of one width, oldest first: parallel lists, the last still open.

    Attributes:
        width: in seconds.
        buckets: number of each bucket, which is its time by its width.
        floors: the least memory, in pages.
        loads: the mean load, in thousandths; below 0 where it was never known.
    """

    __slots__ = ("_known", "_sum", "buckets", "floors", "loads", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.buckets: list[int] = []
        self.floors: list[int] = []
        self.loads: list[int] = []
        self._known = self._sum = 0

    def add(self, time: float, pages: int, load: int | None) -> bool:
        """Take a value that is not older than the latest; whether it begins a bucket."""
        bucket = int(time // self.width)
        began = not self.buckets or self.buckets[-1] != bucket
        if began:
            self.buckets.append(bucket)
            self.floors.append(pages)
            self.loads.append(_UNKNOWN)
            self._known = self._sum = 0
            if len(self.buckets) > BUCKETS:
                del self.buckets[0], self.floors[0], self.loads[0]
        elif pages < self.floors[-1]:
            self.floors[-1] = pages
        if load is not None:
            self._known += 1
            self._sum += load
            self.loads[-1] = self._sum // self._known
        return began

    def dump(self) -> list[Any]:
        """As JSON: count and sum of the latest bucket's loads, then lists of changes."""
        return [
            self._known,
            self._sum,
            list(_changes(self.buckets)),
            list(_changes(self.floors)),
            list(self.loads),
        ]

    def load(self, data: object) -> None:
        """Take back what `dump` gave.

        Raises:
            ValueError: it is nothing that `dump` gives.
        """
        match data:
            case [known, total, list(buckets), list(floors), list(loads)] if (
                len(buckets) == len(floors) == len(loads) <= BUCKETS
            ):
                for each in (*buckets, *floors, *loads):
                    whole(each)
            case _:
                raise ValueError(f"no level of floors: {data!r:.80}")
        if any(step <= 0 for step in buckets[1:]):
            raise ValueError(f"buckets out of order: {buckets!r:.80}")
        self._known, self._sum = whole(known), whole(total)
        if self._known < 0 or self._sum < 0:
            raise ValueError(f"no count of loads: {known}, {total}")
        self.buckets = list(_sums(buckets))
        self.floors = list(_sums(floors))
        self.loads = loads


class Floors:
    """The floors of one series at all levels."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        self.levels = tuple(Level(width) for width in WIDTHS)

    def add(self, time: float, amount: int, load: float | None) -> bool:
        """Take a value in bytes; whether it begins a bucket of the finest level."""
        pages = amount >> PAGE_BITS
        units = None if load is None else round(load * LOAD_UNIT)
        began = False
        for level in reversed(self.levels):
            began = level.add(time, pages, units)
        return began

    def dump(self) -> list[Any]:
        """As JSON."""
        return [level.dump() for level in self.levels]

    @classmethod
    def restore(cls, data: object) -> Floors:
        """Back from `dump`.

        Raises:
            ValueError: it is nothing that `dump` gives.
        """
        floors = cls()
        if not isinstance(data, list) or len(data) != len(WIDTHS):
            raise ValueError(f"no floors: {data!r:.80}")
        for level, kept in zip(floors.levels, data, strict=True):
            level.load(kept)
        return floors


def _changes(numbers: list[int]) -> Iterator[int]:
    before = 0
    for number in numbers:
        yield number - before
        before = number


def _sums(changes: list[int]) -> Iterator[int]:
    number = 0
    for change in changes:
        number += change
        yield number
