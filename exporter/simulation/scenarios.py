"""What happens to a simulated GPU: workloads and faults, each a small pure function.

A scenario takes a GPU's condition and gives the changed one; several at once are applied in turn.
Workloads (idle, training, inference) replace what runs; faults change one thing each and leave the
rest as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from exporter.simulation.models import Model
from exporter.simulation.signals import Signal, wave

HOUR = 3600.0
NOTHING = Signal()
STEP = 7.3
"""Seconds of one training step: compute, then all-reduce."""
RESIDUE = 0.005
"""Share of the VRAM that a job leaves behind without an owner, in `vram_residue`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scenario happens.

    Attributes:
        model: of the GPU.
        common: a phase from 0 to 1 that all GPUs of the node share.
        own: one that differs from GPU to GPU.
        links: how many XGMI links the GPU has in this node.
    """

    model: Model
    common: float
    own: float
    links: int


@dataclass(frozen=True, slots=True)
class Condition:
    """What drives a GPU for a while; everything that is read follows from it.

    Attributes:
        present: whether it is on the bus, with its driver.
        program: what runs on it, None for nothing.
        gfx, memory: share of time that compute units and memory controllers work.
        xgmi: share of each link's peak, each way.
        pcie: share of the slot's peak, both ways together.
        held: share of the VRAM that the program holds.
        leak: what it holds more every second, as a share of the VRAM.
        jobs: per second, how many jobs end that leave `RESIDUE` behind.
        hbm_celsius: what the HBM is heading for, None for what its load makes of it.
        slowdown: what the compute clock is multiplied with.
        residencies: by the name in gpu_metrics, the share of time that it throttles.
        replays: PCIe replays per second.
        correctable, deferred, uncorrectable: HBM errors per second.
        degraded: the slot trained one generation lower, with half the lanes.
        down: the numbers of XGMI links that are down.
    """

    present: bool = True
    program: str | None = None
    gfx: Signal = NOTHING
    memory: Signal = NOTHING
    xgmi: Signal = NOTHING
    pcie: Signal = NOTHING
    held: Signal = NOTHING
    leak: float = 0.0
    jobs: float = 0.0
    hbm_celsius: float | None = None
    slowdown: float = 1.0
    residencies: Mapping[str, float] = field(default_factory=dict)
    replays: float = 0.0
    correctable: float = 0.0
    deferred: float = 0.0
    uncorrectable: float = 0.0
    degraded: bool = False
    down: frozenset[int] = frozenset()


def idle(condition: Condition, place: Place) -> Condition:
    """Nothing runs."""
    return replace(
        condition,
        program=None,
        gfx=NOTHING,
        memory=NOTHING,
        xgmi=NOTHING,
        pcie=NOTHING,
        held=NOTHING,
    )


def training(condition: Condition, place: Place) -> Condition:
    """All GPUs work in step and near their power cap; after each step they exchange gradients."""
    step = place.common
    return replace(
        condition,
        program="train",
        gfx=Signal(
            0.94, (wave(0.03, STEP, step), wave(0.008, 41, place.own), wave(0.008, 2700, step))
        ),
        memory=Signal(0.55, (wave(0.12, STEP, step + 0.1), wave(0.02, 53, place.own))),
        xgmi=Signal(0.42, (wave(0.3, STEP, step + 0.5), wave(0.05, 600, step))),
        pcie=Signal(0.06, (wave(0.04, 20, step),)),
        held=Signal(0.86, (wave(0.004, 45, place.own),)),
    )


def inference(condition: Condition, place: Place) -> Condition:
    """Requests come in bursts; the key-value cache is allocated once and stays."""
    own = place.own
    return replace(
        condition,
        program="serve",
        gfx=Signal(0.5, (wave(0.24, 11, own), wave(0.14, 31, own * 3), wave(0.08, 900, own * 7))),
        memory=Signal(0.44, (wave(0.2, 11, own), wave(0.12, 31, own * 3))),
        xgmi=Signal(0.06, (wave(0.04, 11, place.common),)),
        pcie=Signal(0.03, (wave(0.02, 11, own),)),
        held=Signal(0.92),
    )


def hbm_overheat(condition: Condition, place: Place) -> Condition:
    """The HBM heads for a little more than its critical limit, within minutes."""
    return replace(condition, hbm_celsius=place.model.limits["mem"].critical + 3.0)


def pcie_replays(condition: Condition, place: Place) -> Condition:
    """The link to the host corrects errors all the time."""
    return replace(condition, replays=4.0)


def pcie_degraded(condition: Condition, place: Place) -> Condition:
    """The link to the host trained one generation lower and with half the lanes."""
    return replace(condition, degraded=True)


def xgmi_link_down(condition: Condition, place: Place) -> Condition:
    """The GPU's first XGMI link goes down, at both ends."""
    return replace(condition, down=frozenset({0} if place.links else ()))


def vram_leak(condition: Condition, place: Place) -> Condition:
    """The program never gives back 4 % of the VRAM per hour; where none runs, a small one does it.

    When the scenario ends the program is restarted, and the memory comes back.
    """
    leak = 0.04 / HOUR
    if condition.program is None:
        return replace(condition, program="leaky", held=Signal(0.1), leak=leak)
    return replace(condition, leak=leak)


def vram_residue(condition: Condition, place: Place) -> Condition:
    """Every 20 minutes a short job leaves `RESIDUE` of the VRAM behind, which nobody owns.

    It stays until the driver is loaded anew. On a GPU that works it can't be told from what the
    driver needs, so combine it with an idle one to see it judged.
    """
    return replace(condition, jobs=3 / HOUR)


def ecc_storm(condition: Condition, place: Place) -> Condition:
    """Correctable HBM errors rise fast, and some can't be corrected."""
    return replace(condition, correctable=12.0, deferred=0.02, uncorrectable=0.005)


def gpu_lost(condition: Condition, place: Place) -> Condition:
    """The GPU leaves the bus; at the end it is back, with a driver that was loaded anew."""
    return replace(condition, present=False)


def throttle(condition: Condition, place: Place) -> Condition:
    """Power and heat hold the clocks down."""
    return replace(condition, slowdown=0.6, residencies={"ppt": 0.45, "socket_thm": 0.25})


Scenario = Callable[[Condition, Place], Condition]
WORKLOADS: Mapping[str, Scenario] = {"idle": idle, "training": training, "inference": inference}
"""Run on every GPU unless one is named."""
FAULTS: Mapping[str, Scenario] = {
    "hbm-overheat": hbm_overheat,
    "pcie-replays": pcie_replays,
    "pcie-degraded": pcie_degraded,
    "xgmi-link-down": xgmi_link_down,
    "vram-leak": vram_leak,
    "vram-residue": vram_residue,
    "ecc-storm": ecc_storm,
    "gpu-lost": gpu_lost,
    "throttle": throttle,
}
"""Strike one GPU; applied after all workloads."""
SCENARIOS: Mapping[str, Scenario] = {**WORKLOADS, **FAULTS}
