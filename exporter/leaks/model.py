"""What goes into the detector, what comes out, and the thresholds in between."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

MEBIBYTE = 1 << 20
HOUR = 3600.0

Kind = Literal["none", "process", "residue"]
Confidence = Literal["", "medium", "high"]

INSUFFICIENT = "insufficient"
"""The evidence of a verdict that has not been reached yet."""
OTHERS = 0
"""The pid of processes that are only known as a sum: their memory is owned, but not judged."""


class ProcessUse(NamedTuple):
    """Memory that one process holds on a GPU.

    Attributes:
        pid: of the process; `OTHERS` for a sum over several.
        start_time: tells two processes with one pid apart; in any unit.
        vram_bytes: what it holds.
    """

    pid: int
    start_time: float
    vram_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of one GPU (or partition) at one moment.

    Attributes:
        time_seconds: when; any clock that is the same for all samples.
        vram_total_bytes, vram_used_bytes: of the device.
        gfx_activity_ratio: 0 to 1; None where it is not reported.
        processes: who holds memory, without zombies (what they hold is nobody's); None where
            the owners can't be known, which is not the same as nobody.
    """

    time_seconds: float
    vram_total_bytes: int
    vram_used_bytes: int
    gfx_activity_ratio: float | None
    processes: tuple[ProcessUse, ...] | None


def _threshold(default: float, why: str, low: float, high: float) -> Any:
    return field(default=default, metadata={"why": why, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When the detector speaks. Every default holds for devices of 64 to 288 GB.

    `why(name)` is the reason of each. Shares are of the device's VRAM.
    """

    growth_ratio: float = _threshold(
        0.0075,
        "Growth of a floor below this share of the VRAM is nobody's trouble yet: at 1 % per hour "
        "it takes 45 minutes, at 3 % in 20 hours 5 hours. It is 0.5 GB of 64 GB and 2.2 GB of "
        "288 GB, above what page tables and contexts add.",
        0.0001,
        0.5,
    )
    growth_bytes: float = _threshold(
        256 * MEBIBYTE,
        "The same for small partitions, where a share is less than one pool of an allocator.",
        0,
        1 << 40,
    )
    orphan_ratio: float = _threshold(
        0.01,
        "Memory without an owner up to this share is not told from what the driver and the first "
        "job's lasting context hold.",
        0.0001,
        0.5,
    )
    orphan_bytes: float = _threshold(
        1024 * MEBIBYTE,
        "The same in bytes, whichever is more: a driver context has about the same size on every "
        "device, some hundreds of MiB.",
        0,
        1 << 40,
    )
    settle_seconds: float = _threshold(
        900.0,
        "Memory without an owner must stay for so long: a driver frees a large process within "
        "seconds to minutes, and a supervisor restarts one within minutes.",
        0,
        86_400,
    )
    idle_activity_ratio: float = _threshold(
        0.05,
        "Above this activity a GPU without owners is not idle: its owners can't be seen (another "
        "virtual machine, a namespace), so that nothing is said of their memory.",
        0,
        1,
    )
    warm_up_seconds: float = _threshold(
        2700.0,
        "What a process takes in its first 45 minutes is loading, autotuning and first requests.",
        0,
        86_400,
    )
    span_seconds: float = _threshold(
        5400.0,
        "No rise is judged before it has lasted for so long: lazy loading, graph capture and "
        "most collections of garbage take less, and a leak that matters goes on.",
        300,
        604_800,
    )
    concavity: float = _threshold(
        0.51,
        "How far the mean of a rise may lie up between its start (0) and end (1). A leak goes on "
        "at its pace (0.5); warm-up, pools and growing batches slow down (a rise that saturates "
        "lies at 0.54 after half its time constant, and at 0.58 after one).",
        0.5,
        1,
    )
    convexity: float = _threshold(
        0.41,
        "The same downwards: below it, most of the time nothing rose (the present swing of a "
        "saw, a single late step).",
        0,
        0.5,
    )
    steps: float = _threshold(
        5.0,
        "The number of equal steps that a rise must be worth (inverse Simpson index of its "
        "steps), where the window holds so many: loading a model, a pool or a larger batch is "
        "one or a few.",
        1,
        30,
    )
    trend_z: float = _threshold(
        2.3,
        "Mann-Kendall's standard score that the floors must reach (chance 1 in 100 for values "
        "that are independent); two inversions in 7 samples are let pass.",
        0,
        30,
    )
    trend_tau: float = _threshold(
        0.7,
        "The surplus of rising over falling pairs; the score alone is too kind to long series "
        "of correlated values.",
        0,
        1,
    )
    swing_ratio: float = _threshold(
        0.25,
        "How far beyond its usual range of the last week a floor must be, as a share of that "
        "range: no day is like the other. Without a range it costs nothing.",
        0,
        2,
    )
    comparable_ratio: float = _threshold(
        0.3,
        "The share of pairs of floors between which the load did not rise. Where load explains "
        "most pairs, it explains the rise.",
        0,
        1,
    )
    load_tolerance: float = _threshold(
        0.05,
        "A difference of activity that counts as the same load.",
        0,
        1,
    )
    load_ratio: float = _threshold(
        0.5,
        "The share of the VRAM that a load from 0 to 1 may take of its own accord. A rise that "
        "this times the rise of the load, and what its noise leaves open, could explain is none.",
        0,
        10,
    )
    context_bytes: float = _threshold(
        512 * MEBIBYTE,
        "What the driver may hold for each process beyond the memory that it reports.",
        0,
        1 << 40,
    )
    hold_seconds: float = _threshold(
        2 * HOUR,
        "A suspicion ends when the floor has not risen for so long, or for as long as it had "
        "risen before, whichever is more.",
        300,
        31_536_000,
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            low, high = each.metadata["low"], each.metadata["high"]
            if not low <= value <= high:
                raise ValueError(f"{each.name}: expected {low:g} to {high:g}, got {value!r:.40}")

    @classmethod
    def why(cls, name: str) -> str:
        """Why the default of a threshold is what it is."""
        return {each.name: str(each.metadata["why"]) for each in fields(cls)}[name]

    def growth(self, total: int) -> float:
        """The least growth that counts on a device with so many bytes."""
        return max(self.growth_bytes, self.growth_ratio * total)

    def orphan(self, total: int) -> float:
        """The least memory without an owner that counts on a device with so many bytes."""
        return max(self.orphan_bytes, self.orphan_ratio * total)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is thought of a GPU after its latest sample.

    Attributes:
        kind: the worst that is suspected; a process goes before a residue.
        process, residue: suspected (True), judged and clean (False), or not judged yet (None).
        evidence: one sentence for people; `insufficient` where nothing was judged.
        since_seconds: when it began, by the clock of the samples.
        bytes_per_second: how fast; 0 for a residue that stays as it is.
        pid: of the process, where that is the leak.
        confidence: how sure: "medium" when named, "high" once it has gone on for twice what
            it takes to be named; "" where nothing is suspected.
        growth_bytes_per_second: slope of the floor of all use; None until there is enough.
        exhaustion_seconds: until the VRAM is full at that pace; None where it does not grow.
        unattributed_bytes: in use, less all that owners and the idle baseline account for;
            None where the owners are not known.
    """

    kind: Kind = "none"
    process: bool | None = None
    residue: bool | None = None
    evidence: str = INSUFFICIENT
    since_seconds: float | None = None
    bytes_per_second: float | None = None
    pid: int | None = None
    confidence: Confidence = ""
    growth_bytes_per_second: float | None = None
    exhaustion_seconds: float | None = None
    unattributed_bytes: int | None = None

    @property
    def judged(self) -> bool:
        """There was enough to say something of at least one kind."""
        return self.process is not None or self.residue is not None
