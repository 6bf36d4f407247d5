"""What every source offers: a session with views of devices, and remembered slow facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from exporter.values import Absent, Value

POLL = 0.0
"""Asked once in every poll."""
SLOW = 30.0
"""Seconds between two looks at what changes seldom: error counts, bad pages, limits."""
STATIC = math.inf
"""Asked once per device generation: names, firmware, what a device can do."""
ASK_AGAIN = 300.0
"""Seconds after which a static fact that was absent is asked for again."""

POD_RESOURCES = "pod_resources"
"""The one source that tells nothing of the devices themselves, only who was given them."""

T = TypeVar("T")


class Memo:
    """Answers kept for as long as their kind allows; an absence is never kept for good."""

    def __init__(self) -> None:
        self.now = 0.0
        self._kept: dict[object, tuple[float, object]] = {}

    def get(self, key: object, every: float, ask: Callable[[], T]) -> T:
        """The answer kept under `key`, or a new one by `ask` when it is due."""
        kept = self._kept.get(key)
        if kept is not None and self.now <= kept[0]:
            return kept[1]  # type: ignore[return-value]  # the key determines the type
        answer = ask()
        keep = min(every, ASK_AGAIN) if isinstance(answer, Absent) else every
        self._kept[key] = (self.now + keep, answer)
        return answer


class DeviceKey(NamedTuple):
    """A device as everything in the daemon knows it. A tuple, since it is hashed very often.

    Attributes:
        address: the PCI address, `0000:c1:00.0`, lower case.
        partition: its partition as a label value, None for the whole device (the socket).
    """

    address: str
    partition: str | None = None


class View(Protocol):
    """One device, or one of its partitions, as a reader function gets it."""

    @property
    def address(self) -> str: ...

    @property
    def partition(self) -> str | None: ...


class UnavailableError(Exception):
    """The source can't be used now.

    Attributes:
        reason: what happened, to which file or library.
        remedy: what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class Session(Protocol):
    """An opened source, living in its worker, called from one thread."""

    def node(self) -> Mapping[str, Value]:
        """Versions and counts of the whole node, under the names of `NodeFacts`."""

    def begin(self, now: float) -> None:
        """Start a poll at the monotonic time `now`, in seconds."""

    def changed(self) -> bool:
        """Whether devices came or went since the session was opened."""

    def devices(self) -> Sequence[tuple[str, int]]:
        """The PCI addresses in the source's own order, each with the source's index."""

    def suspended(self, address: str) -> bool:
        """Whether the device sleeps, found without waking it."""

    def views(self, address: str, *, per_partition: bool) -> Sequence[View]:
        """The views of a device: one for the socket, or one per partition if it has any.

        A device that is not partitioned has the same single view in both cases.
        """
