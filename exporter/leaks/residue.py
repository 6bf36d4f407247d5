"""Memory that stayed without an owner: after an exit, or on an idle GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.leaks.kept import number, whole
from exporter.leaks.model import Thresholds

ProcessKey = tuple[int, float]
"""Pid and start time."""
SAMPLES = 3
"""How many samples must see it: one may have read the owners and the use at two moments."""


@dataclass(slots=True)
class Orphan:
    """Memory without an owner, above a level.

    Attributes:
        since: when it was first seen.
        level: bytes without an owner before.
        amount: bytes above, the least since.
        pid: who held it last; 0 where that is not known.
        owners: how many there were before.
        samples: how many saw it.
        named: it has stayed for long enough.
    """

    since: float
    level: int
    amount: int
    pid: int
    owners: int
    samples: int = 0
    named: bool = False


class Residue:
    """Watches what exits leave behind, and how much an idle GPU holds.

    Attributes:
        holding: who held how much at the latest sample.
        orphan: what lies there now without an owner, named or not yet.
    """

    __slots__ = ("_idle_level", "_least", "_unowned", "holding", "orphan")

    def __init__(self) -> None:
        self.holding: Mapping[ProcessKey, int] = {}
        self.orphan: Orphan | None = None
        self._unowned = 0
        self._idle_level: int | None = None
        self._least: int | None = None

    def observe(
        self,
        time: float,
        unowned: int,
        holding: Mapping[ProcessKey, int],
        total: int,
        limits: Thresholds,
    ) -> None:
        """Take a sample of memory without an owner, and of the owners."""
        least = limits.orphan(total)
        gone = [key for key in self.holding if key not in holding]
        lost = sum(self.holding[key] for key in gone)
        risen = unowned - self._unowned
        if not holding:
            self._idle_level = _lower(self._idle_level, unowned)
        self._least = _lower(self._least, unowned)
        old = self.orphan
        if old is not None and (
            unowned - old.level < least + self._contexts(old.owners, holding, limits)
            or (holding and not old.pid and not old.named)
        ):
            self.orphan = old = None
        if old is None:
            more = self._contexts(len(self.holding), holding, limits)
            if gone and risen >= max(least, lost / 4) + more:
                last = max(gone, key=lambda key: (self.holding[key], key))
                self.orphan = Orphan(time, self._unowned, risen, last[0], len(self.holding))
            elif not holding and unowned - self.baseline(total, limits) >= least:
                level = self.baseline(total, limits)
                self.orphan = Orphan(time, level, unowned - level, 0, 0)
        self._unowned = unowned
        self.holding = holding
        now = self.orphan
        if now is not None:
            now.samples += 1
            now.amount = min(now.amount, unowned - now.level)
            if now.samples >= SAMPLES and time - now.since >= limits.settle_seconds:
                now.named = True

    @staticmethod
    def _contexts(before: int, holding: Mapping[ProcessKey, int], limits: Thresholds) -> float:
        """What more owners than before explain."""
        return max(0, len(holding) - before) * limits.context_bytes

    def baseline(self, total: int, limits: Thresholds) -> int:
        """What the driver holds of its own accord, as far as is known."""
        level = self._least if self._idle_level is None else self._idle_level
        return max(0, min(level or 0, int(limits.orphan(total))))

    def unattributed(self, total: int, limits: Thresholds) -> int:
        """Memory that neither owners nor the baseline account for."""
        return max(0, self._unowned - self.baseline(total, limits))

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        o = self.orphan
        return {
            "holding": [[*key, vram] for key, vram in self.holding.items()],
            "orphan": o and [o.since, o.level, o.amount, o.pid, o.owners, o.samples, o.named],
            "unowned": self._unowned,
            "idle_level": self._idle_level,
            "least": self._least,
        }

    @classmethod
    def restore(cls, data: object) -> Residue:
        """Back from `dump`.

        Raises:
            ValueError: it is nothing that `dump` gives.
        """
        residue = cls()
        match data:
            case {
                "holding": list(holding),
                "orphan": orphan,
                "unowned": unowned,
                "idle_level": idle_level,
                "least": least,
            }:
                residue._unowned = whole(unowned)
                residue._idle_level = None if idle_level is None else whole(idle_level)
                residue._least = None if least is None else whole(least)
            case _:
                raise ValueError(f"no residue: {data!r:.80}")
        held: dict[ProcessKey, int] = {}
        for each in holding:
            match each:
                case [pid, start_time, vram]:
                    held[whole(pid), number(start_time)] = whole(vram)
                case _:
                    raise ValueError(f"no owner: {each!r:.80}")
        residue.holding = held
        match orphan:
            case None:
                pass
            case [since, level, amount, pid, owners, samples, bool(named)]:
                residue.orphan = Orphan(
                    number(since),
                    whole(level),
                    whole(amount),
                    whole(pid),
                    whole(owners),
                    whole(samples),
                    named,
                )
            case _:
                raise ValueError(f"no orphan: {orphan!r:.80}")
        return residue


def _lower(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
