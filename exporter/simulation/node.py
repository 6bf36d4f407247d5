"""The state of the simulated node at a moment: a pure function of the specification and the time.

The scenarios divide time into stretches in which every GPU's condition stays the same; over these,
`signals` gives values, integrals and inertia in closed form. What one GPU shows fits what the
others show: a link carries at one end what it carries at the other.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from exporter.simulation.clock import Clock
from exporter.simulation.models import MIB, MODELS, Model
from exporter.simulation.scenarios import FAULTS, RESIDUE, SCENARIOS, WORKLOADS, Condition, Place
from exporter.simulation.signals import Lagged, Signal, Timeline
from exporter.simulation.spec import ScenarioRun, SimulationSpec

UPTIME = 3 * 86_400.0
"""Seconds for which the host was up when the simulation began."""
TICKS_PER_SECOND = 1000
"""Of the firmware's accumulation counter (assumption)."""
FIRST_PID = 5_000_000
"""Linux gives no process a number above 4194304, so these can't be real ones."""
PAGE = 4096
BASELINE = 284 * MIB
"""VRAM that the driver keeps on an idle GPU (assumption)."""
HEADROOM = 0.02
"""Share of the VRAM that no program gets: its allocations fail before."""
LOADING = 12.0
"""Seconds in which a program that starts takes two thirds of its memory."""

CPU_NODES = 2
"""KFD counts the processors first."""
_INLET = 30.0
_RISES = {"junction": (48.0, 25.0), "edge": (40.0, 40.0), "mem": (38.0, 60.0), "vr": (30.0, 40.0)}
"""Sensor to degrees above the inlet at the power cap, and thermal inertia in seconds."""
RESIDENCIES = ("prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm")


class Partition(NamedTuple):
    """One compute partition of a device; an unpartitioned device has one."""

    gpu_id: int
    node: int
    render: int


class Device(NamedTuple):
    """What never changes about one GPU.

    Attributes:
        number: its place on the node, the integrated one first.
        gpu: its number among the simulated GPUs, None for an integrated one.
        card: of `/sys/class/drm/card…`.
        secondary: the die of a package without sensors for power.
        peers: the numbers of the devices at the other ends of its links, in the order of the links.
    """

    number: int
    gpu: int | None
    model: Model
    address: str
    card: int
    numa: int
    unique_id: int
    partitions: tuple[Partition, ...]
    secondary: bool
    peers: tuple[int, ...]


class Process(NamedTuple):
    """A program that holds memory on one device, or on one partition of it."""

    pid: int
    program: str
    started: float
    gpu_id: int
    vram: int


class State(NamedTuple):
    """What a GPU would show at a moment. Base units; counts since its driver was loaded.

    Attributes:
        loaded_for: seconds since the driver was loaded.
        gfx, memory: shares of time.
        power: of the package in watts, energy in joules; 0 for a secondary die.
        celsius: by sensor (junction, edge, mem, vr).
        gfx_clock, memory_clock: MHz.
        gfx_seconds, memory_seconds: time for which they worked.
        residencies: seconds for which each reason throttled.
        links_up: by link.
        read, written: bytes, by link.
        pcie_rate: bytes per second over the slot; pcie_bytes: since the driver was loaded.
        replays: counted on the PCIe link.
        correctable, uncorrectable, deferred: errors of the HBM.
        bad_pages: retired so far, kept over a new start of the driver.
        vram_used: bytes.
        processes: that hold a part of it.
    """

    time: float
    condition: Condition
    loaded_for: float
    gfx: float
    memory: float
    power: float
    energy: float
    celsius: Mapping[str, float]
    gfx_clock: int
    memory_clock: int
    gfx_seconds: float
    memory_seconds: float
    residencies: Mapping[str, float]
    links_up: Sequence[bool]
    read: Sequence[float]
    written: Sequence[float]
    pcie_rate: float
    pcie_bytes: float
    replays: int
    correctable: int
    uncorrectable: int
    deferred: int
    bad_pages: int
    vram_used: int
    processes: tuple[Process, ...]


def _turns(*words: object) -> float:
    """A phase from 0 to 1 that depends on nothing but the words."""
    return Random("/".join(map(str, words))).random()  # noqa: S311  # not for secrets


def _target(run: ScenarioRun, spec: SimulationSpec) -> int | None:
    """The GPU that a run is about, None for all of them."""
    if run.gpu is None and run.name in FAULTS:
        return zlib.crc32(f"{spec.seed}/{run.name}".encode()) % spec.gpus
    return run.gpu


def _peers(model: Model, gpu: int, count: int) -> tuple[int, ...]:
    if model.xgmi is None:
        return ()
    if model.xgmi.cube:
        other = (gpu ^ (1 << bit) for bit in range(model.xgmi.links))
        return tuple(peer for peer in other if peer < count)
    size = model.xgmi.links + 1
    first = gpu // size * size
    return tuple(peer for peer in range(first, min(first + size, count)) if peer != gpu)


class _Course:
    """One device's conditions over time, and what follows from them alone.

    Args:
        parts: the start of each stretch, and the condition in it.
    """

    def __init__(self, device: Device, parts: Sequence[tuple[float, Condition]]) -> None:
        model = device.model
        self.starts = [start for start, _ in parts]
        self.conditions = [condition for _, condition in parts]
        span = (model.power_cap or 4 * model.idle_power) - model.idle_power

        def over(signals: Sequence[Signal]) -> Timeline:
            return Timeline(zip(self.starts, signals, strict=True))

        def rates(name: str) -> Timeline:
            return over([Signal(getattr(c, name)) for c in self.conditions])

        gfx = [c.gfx for c in self.conditions]
        memory = [c.memory for c in self.conditions]
        power = [
            (g * 0.8 + m * 0.2) * (span / model.dies) + Signal(model.idle_power / model.dies)
            for g, m in zip(gfx, memory, strict=True)
        ]
        self.gfx, self.memory, self.power = over(gfx), over(memory), over(power)
        self.pcie = over([c.pcie for c in self.conditions])
        self.held = over([c.held for c in self.conditions])
        self.leaked, self.jobs, self.replays = rates("leak"), rates("jobs"), rates("replays")
        self.correctable, self.deferred, self.uncorrectable = (
            rates(name) for name in ("correctable", "deferred", "uncorrectable")
        )
        self.residencies = {
            name: over([Signal(c.residencies.get(name, 0.0)) for c in self.conditions])
            for name in RESIDENCIES
        }
        inlet = _INLET + 4 * _turns("inlet", device.unique_id)
        full = span + model.idle_power
        self.celsius: dict[str, Lagged] = {}
        for sensor, (rise, inertia) in _RISES.items():
            heat = [Signal(inlet) + watts * (rise * model.dies / full) for watts in power]
            if sensor == "mem":
                heat = [
                    h if c.hbm_celsius is None else Signal(c.hbm_celsius)
                    for h, c in zip(heat, self.conditions, strict=True)
                ]
            self.celsius[sensor] = over(heat).lagged(inertia)
        self.loaded, self.began = self._beginnings()

    def _beginnings(self) -> tuple[list[float], list[float]]:
        """For each stretch: since when its driver is loaded, and since when its program runs."""
        loaded, began = [-UPTIME], [-math.inf]
        for i in range(1, len(self.starts)):
            before, after = self.conditions[i - 1], self.conditions[i]
            returned = after.present and not before.present
            restarted = returned or (after.program, after.leak) != (before.program, before.leak)
            loaded.append(self.starts[i] if returned else loaded[-1])
            began.append(self.starts[i] if restarted else began[-1])
        return loaded, began


class SimulatedNode:
    """The whole node.

    Args:
        spec: what to simulate.
        clock: whose time it shows.
    """

    def __init__(self, spec: SimulationSpec, clock: Clock) -> None:
        self.clock = clock
        self.boot_id = str(_uuid(spec.seed))
        self.devices = _devices(spec)
        bounds = {0.0}
        for run in spec.scenarios:
            bounds.add(run.start_seconds)
            bounds.update(() if run.end_seconds is None else (run.end_seconds,))
        self._starts = sorted(bounds)
        self._courses = [
            _Course(
                device, [(start, self._condition(spec, device, start)) for start in self._starts]
            )
            for device in self.devices
        ]
        self._traffic = self._links()
        self._states: dict[int, State] = {}

    def _condition(self, spec: SimulationSpec, device: Device, start: float) -> Condition:
        condition = Condition()
        if device.gpu is None:
            return condition
        place = Place(
            device.model,
            _turns("step", spec.seed),
            _turns("gpu", spec.seed, device.gpu),
            len(device.peers),
        )
        for group in (WORKLOADS, FAULTS):
            for run in spec.scenarios:
                running = run.start_seconds <= start and (
                    run.end_seconds is None or start < run.end_seconds
                )
                if run.name in group and running and _target(run, spec) in (None, device.gpu):
                    condition = SCENARIOS[run.name](condition, place)
        return condition

    def _links(self) -> dict[tuple[int, int], Timeline]:
        """Device and link to the share of the link's peak that it sends; 0 while it is down."""
        return {
            (device.number, link): Timeline(
                (start, self._sent(device, link, i)) for i, start in enumerate(self._starts)
            )
            for device in self.devices
            for link in range(len(device.peers))
        }

    def _sent(self, device: Device, link: int, stretch: int) -> Signal:
        ends = sorted((device.number, device.peers[link]))
        first, second = (self._courses[end].conditions[stretch] for end in ends)
        if not self._up(device, link, stretch) or not (first.xgmi.mean and second.xgmi.mean):
            return Signal()
        return first.xgmi * (1.0 if device.number == ends[0] else 0.97)

    def _up(self, device: Device, link: int, stretch: int) -> bool:
        peer = self.devices[device.peers[link]]
        here, there = (self._courses[d.number].conditions[stretch] for d in (device, peer))
        return (
            here.present
            and there.present
            and link not in here.down
            and peer.peers.index(device.number) not in there.down
        )

    def present(self, number: int) -> bool:
        """Whether a device is on the bus."""
        return self._courses[number].conditions[self._stretch(self.clock.now())].present

    def changes(self) -> int:
        """How often devices have come or gone so far."""
        last = self._stretch(self.clock.now())
        return sum(
            course.conditions[i].present != course.conditions[i - 1].present
            for course in self._courses
            for i in range(1, last + 1)
        )

    def _stretch(self, t: float) -> int:
        return bisect_right(self._starts, t) - 1

    def processes(self) -> list[Process]:
        """All programs that hold memory now, by device."""
        return [
            process
            for device in self.devices
            if self.present(device.number)
            for process in self.state(device.number).processes
        ]

    def state(self, number: int) -> State:
        """What a device shows now."""
        now = self.clock.now()
        known = self._states.get(number)
        if known is None or known.time != now:
            known = self._states[number] = self._state(self.devices[number], now)
        return known

    def _state(self, device: Device, t: float) -> State:
        stretch = self._stretch(t)
        course = self._courses[device.number]
        condition = course.conditions[stretch]
        model = device.model
        loaded = course.loaded[stretch]

        def count(timeline: Timeline) -> float:
            """Since the driver was loaded."""
            total = timeline.total(t)
            return total - timeline.total(loaded) if loaded > 0 else total

        gfx, memory = course.gfx.at(t), course.memory.at(t)
        package: list[_Course] = []
        if not device.secondary:
            package = self._courses[device.number : device.number + model.dies]
        before = model.idle_power / model.dies * max(0.0, -loaded)  # it idled since the boot
        peak = model.xgmi.peak if model.xgmi else 0.0
        slot = pcie_peak(model.pcie_gen, model.pcie_width)
        written, read = [], []
        for link, number in enumerate(device.peers):
            far = self.devices[number].peers.index(device.number)
            written.append(peak * count(self._traffic[device.number, link]))
            read.append(peak * count(self._traffic[number, far]))
        residue = math.floor(count(course.jobs)) * RESIDUE
        held, processes = self._memory(device, t, stretch, residue)
        return State(
            time=t,
            condition=condition,
            loaded_for=t - loaded,
            gfx=gfx,
            memory=memory,
            power=sum(die.power.at(t) for die in package),
            energy=sum(count(die.power) + before for die in package),
            celsius={sensor: lagged.at(t) for sensor, lagged in course.celsius.items()},
            gfx_clock=_between(model.gfx_clock.low, model.gfx_clock.high, gfx * condition.slowdown),
            memory_clock=model.memory_clock.high if memory > 0.01 else model.memory_clock.low,
            gfx_seconds=count(course.gfx),
            memory_seconds=count(course.memory),
            residencies={name: count(line) for name, line in course.residencies.items()},
            links_up=[self._up(device, link, stretch) for link in range(len(device.peers))],
            read=read,
            written=written,
            pcie_rate=slot * course.pcie.at(t),
            pcie_bytes=slot * count(course.pcie),
            replays=int(count(course.replays)),
            correctable=int(count(course.correctable)),
            uncorrectable=int(count(course.uncorrectable)),
            deferred=int(count(course.deferred)),
            bad_pages=int(course.uncorrectable.total(t)),
            vram_used=held,
            processes=processes,
        )

    def _memory(
        self, device: Device, t: float, stretch: int, residue: float
    ) -> tuple[int, tuple[Process, ...]]:
        """Used VRAM, and the processes that hold it."""
        course = self._courses[device.number]
        condition = course.conditions[stretch]
        total = device.model.vram
        room = total * (1 - HEADROOM)
        base = min(min(BASELINE, total / 8) + residue * total, room)
        if condition.program is None:
            return _pages(base), ()
        began = course.began[stretch]
        held = course.held.at(t) * (1 - math.exp((began - t) / LOADING))
        if condition.leak:
            held += course.leaked.total(t) - course.leaked.total(max(began, 0.0))
        each = _pages(max(0.0, min(held * total, room - base)) / len(device.partitions))
        first = FIRST_PID + device.number * 10_000 + self._stretch(max(began, 0.0)) * 10
        processes = tuple(
            Process(first + i, condition.program, max(began, 0.0), partition.gpu_id, each)
            for i, partition in enumerate(device.partitions)
        )
        return _pages(base) + each * len(processes), processes


def _pages(size: float) -> int:
    """A size in bytes, down to whole pages."""
    return int(size) // PAGE * PAGE


def pcie_peak(generation: int, lanes: int) -> float:
    """Bytes per second of a PCIe slot, both ways together."""
    return lanes * 0.25e9 * (1 << generation)


def _between(low: float, high: float, share: float) -> int:
    return round(low + (high - low) * share)


def _uuid(seed: int) -> str:
    digits = f"{Random(f'boot/{seed}').getrandbits(128):032x}"  # noqa: S311  # not for secrets
    return "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


def _devices(spec: SimulationSpec) -> tuple[Device, ...]:
    model = MODELS[spec.model]
    kinds: list[tuple[int | None, Model]] = [(gpu, model) for gpu in range(spec.gpus)]
    if model.integrated is not None:
        kinds.insert(0, (None, model.integrated))
    shift = len(kinds) - spec.gpus
    stride = min(0x14, 0xF0 // spec.gpus)
    ids = Random(f"ids/{spec.seed}")  # noqa: S311  # not for secrets
    gpu_ids = iter(ids.sample(range(1024, 65536), sum(kind.partitions for _, kind in kinds)))
    made: list[Device] = []
    units = 0
    for number, (gpu, kind) in enumerate(kinds):
        bus = 0xFE if gpu is None else 5 + stride * gpu
        partitions = tuple(
            Partition(next(gpu_ids), CPU_NODES + unit, 128 + unit)
            for unit in range(units, units + kind.partitions)
        )
        units += kind.partitions
        made.append(
            Device(
                number=number,
                gpu=gpu,
                model=kind,
                address=f"0000:{bus:02x}:00.0",
                card=number,
                numa=0 if number * 2 < len(kinds) else 1,
                unique_id=ids.getrandbits(64) | 1 << 63,
                partitions=partitions,
                secondary=gpu is not None and gpu % kind.dies > 0,
                peers=()
                if gpu is None
                else tuple(peer + shift for peer in _peers(kind, gpu, spec.gpus)),
            )
        )
    return tuple(made)
