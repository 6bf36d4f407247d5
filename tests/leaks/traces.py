"""Labelled traces of a GPU's memory: what leaks, and what only looks like it.

A kind of trace is a function that draws its parameters from a seeded generator and describes the
processes, the memory outside them, and the load. `make` samples that description. The same kind,
seed, size and interval always give the same trace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Literal

from exporter.leaks import ProcessUse, Sample

GIBIBYTE = 1 << 30
MEBIBYTE = 1 << 20
HOUR = 3600.0
DAY = 24 * HOUR
TOTALS = (64, 128, 192, 256, 288)
"""GiB of VRAM: MI210, MI250X and MI300A, MI300X, MI325X, MI350X and MI355X."""
INTERVALS = (15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)
"""Seconds between samples."""
PAGE = 4096

Truth = Literal["none", "process", "residue"]
Curve = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded GPU, and what is the matter with it.

    Attributes:
        kind: name of the kind.
        truth: what should be said of it.
        onset: when the leak begins, after warm-up; its memory is steady until then.
        rate: of the leak, as a share of the VRAM per hour; 0 where it comes at once.
        interval: seconds between samples.
        pid: of the process that leaks.
        samples: in order of time, but for clocks that jump.
    """

    kind: str
    truth: Truth
    onset: float
    rate: float
    interval: float
    pid: int | None
    samples: tuple[Sample, ...]


@dataclass(slots=True)
class Process:
    """A process: its memory as a share of the VRAM by its age in seconds."""

    pid: int
    birth: float
    memory: Curve
    death: float = math.inf
    jitter: float = 0.0


@dataclass(slots=True)
class Scene:
    """What happens on a GPU, from time 0.

    Attributes:
        random, gib, interval: what the kind draws from, and the device.
        processes: all that ever run.
        unowned: memory outside the processes, as a share, beyond the driver's.
        activity: the load; None where it is not reported.
        noise: of the activity.
        duration: seconds.
        truth, onset, rate, pid: as in `Trace`.
        keep: whether the sample at a time is recorded.
        clock: the time as recorded.
        total: VRAM in GiB at a time, where it changes.
    """

    random: Random
    gib: int
    interval: float
    duration: float
    processes: list[Process] = field(default_factory=list)
    unowned: Curve = lambda time: 0.0
    activity: Curve | None = lambda time: 0.9
    noise: float = 0.04
    truth: Truth = "none"
    onset: float = 0.0
    rate: float = 0.0
    pid: int | None = None
    keep: Callable[[float], bool] = lambda time: True
    clock: Curve = lambda time: time
    total: Curve | None = None

    def run(
        self,
        memory: Curve,
        birth: float = 0.0,
        death: float = math.inf,
        jitter: float | None = None,
    ) -> Process:
        """Add a process."""
        if jitter is None:
            jitter = self.random.choice((0.0, 0.0, 0.0002, 0.0005))
        process = Process(self.random.randrange(1000, 1 << 22), birth, memory, death, jitter)
        self.processes.append(process)
        return process

    def leak(self, process: Process | None, rate: float, onset: float, grown: float = 0.4) -> None:
        """Label it: a leak of a share per hour, recorded until it has grown by so much."""
        self.truth = "residue" if process is None else "process"
        self.pid = None if process is None else process.pid
        self.rate, self.onset = rate, onset
        if rate:
            self.duration = min(self.duration, onset + grown / rate * HOUR)


Kind = Callable[[Scene], None]
LEAKS: dict[str, Kind] = {}
"""Kinds that are leaks, by name."""
CLEAN: dict[str, Kind] = {}
"""Kinds that are none."""
LIMITS: dict[str, Kind] = {}
"""Kinds that are none, and that nobody can tell from a leak while they last."""


def make(kind: str, seed: int, gib: int, interval: float, days: float | None = None) -> Trace:
    """A trace of a kind.

    Args:
        kind: its name.
        seed: of all that is drawn.
        gib: VRAM of the device.
        interval: seconds between samples.
        days: how long; by default 1 day where samples are close, up to 10 where they are not.
    """
    random = Random(f"{kind} {seed} {gib} {interval}")  # noqa: S311 - to be repeated
    if days is None:
        days = min(10.0, max(1.0, interval * 150 / DAY))
    scene = Scene(random, gib, interval, days * DAY)
    {**LEAKS, **CLEAN, **LIMITS}[kind](scene)
    return _record(kind, scene)


def _record(kind: str, scene: Scene) -> Trace:
    random, interval = scene.random, scene.interval
    start = 1_700_000_000 + random.randrange(int(30 * DAY))
    driver = random.uniform(150, 600) * MEBIBYTE
    context = random.uniform(150, 450) * MEBIBYTE
    vram = scene.gib * GIBIBYTE
    samples = []
    time = random.uniform(0, interval)
    coming = sorted(scene.processes, key=lambda process: -process.birth)
    running: list[Process] = []
    while time < scene.duration:
        while coming and coming[-1].birth <= time:
            running.append(coming.pop())
        running = [process for process in running if time < process.death]
        if scene.keep(time):
            uses = []
            for process in running:
                share = process.memory(time - process.birth)
                share += abs(random.gauss(0, process.jitter)) if process.jitter else 0.0
                uses.append(ProcessUse(process.pid, start + process.birth, _pages(share * vram)))
            held = sum(use.vram_bytes for use in uses)
            used = held + _pages(
                driver
                + context * len(uses)
                + 0.001 * held
                + scene.unowned(time) * vram
                + abs(random.gauss(0, 4 * MEBIBYTE))
            )
            total = vram if scene.total is None else int(scene.total(time) * GIBIBYTE)
            activity = None
            if scene.activity is not None:
                level = scene.activity(time)
                if level:
                    level += random.gauss(0, scene.noise)
                activity = min(1.0, max(0.0, level))
            samples.append(
                Sample(
                    round(start + scene.clock(time), 3),
                    total,
                    min(used, total),
                    activity,
                    tuple(random.sample(uses, len(uses))),
                )
            )
        time += interval * random.uniform(0.97, 1.03)
    return Trace(
        kind,
        scene.truth,
        start + scene.onset,
        scene.rate,
        interval,
        scene.pid,
        tuple(samples),
    )


def _pages(amount: float) -> int:
    return int(amount) // PAGE * PAGE


# ---- Shapes ----------------------------------------------------------------------------------


def leaks(function: Kind) -> Kind:
    """Register a kind that is a leak."""
    LEAKS[function.__name__] = function
    return function


def clean(function: Kind) -> Kind:
    """Register a kind that is none."""
    CLEAN[function.__name__] = function
    return function


def limit(function: Kind) -> Kind:
    """Register a kind that is none, but looks like one while it lasts."""
    LIMITS[function.__name__] = function
    return function


def warm(level: float, seconds: float) -> Curve:
    """Load up to a level, fast first."""
    return lambda age: level * (1 - math.exp(-4 * age / seconds)) if age < 3 * seconds else level


def ramp(rate: float, onset: float) -> Curve:
    """Grow by a share per hour from a moment on."""
    return lambda age: max(0.0, age - onset) * rate / HOUR


def stairs(rate: float, onset: float, step: float) -> Curve:
    """The same in steps of so many seconds."""
    return lambda age: max(0.0, age - onset) // step * step * rate / HOUR


def saw(height: float, period: float) -> Curve:
    """Fill up and be collected."""
    return lambda age: height * (age % period) / period


def daily(low: float, high: float, peak: float) -> Curve:
    """Between two levels over a day, the highest at a time of day, each day a little different."""

    def curve(time: float) -> float:
        day = math.floor((time - peak) / DAY + 0.5)
        scale = 1 + 0.08 * math.sin(12.9898 * (day + peak))  # the same for the same day
        return low + (high - low) * scale * (0.5 + 0.5 * math.cos((time - peak) / DAY * math.tau))

    return curve


def total_of(*curves: Curve) -> Curve:
    """The sum of curves."""
    return lambda time: sum(curve(time) for curve in curves)


def steps_at(moments: Iterable[float], heights: Iterable[float]) -> Curve:
    """Jump by a height at each moment."""
    jumps = tuple(zip(moments, heights, strict=True))
    return lambda age: sum(height for moment, height in jumps if age >= moment)


def _rate(scene: Scene, low: float, high: float) -> float:
    """A pace at which the record holds at least 14 samples before it is full."""
    fastest = 0.4 * HOUR / (14 * scene.interval)
    return min(math.exp(scene.random.uniform(math.log(low), math.log(high))), fastest)


def _onset(scene: Scene) -> float:
    """Soon after warm-up, a whole sample later where they are far apart."""
    return max(scene.random.uniform(2400, 5400), 1.1 * scene.interval)


def _level(scene: Scene) -> float:
    return scene.random.uniform(0.15, 0.5)


# ---- Leaks -----------------------------------------------------------------------------------


def _linear(scene: Scene, low: float, high: float) -> None:
    rate, onset = _rate(scene, low, high), _onset(scene)
    process = scene.run(total_of(warm(_level(scene), 600), ramp(rate, onset)))
    scene.duration = max(scene.duration, onset + 0.06 / rate * HOUR)
    scene.leak(process, rate, onset)


@leaks
def linear_slow(scene: Scene) -> None:
    """0.1 to 0.5 % per hour."""
    _linear(scene, 0.001, 0.005)


@leaks
def linear_one_percent(scene: Scene) -> None:
    """The pace that the aim names."""
    _linear(scene, 0.01, 0.01)


@leaks
def linear_fast(scene: Scene) -> None:
    """2 to 12 % per hour."""
    _linear(scene, 0.02, 0.12)


@leaks
def stepwise(scene: Scene) -> None:
    """A block at every so many minutes: epochs, reloads of a small part."""
    rate, onset = _rate(scene, 0.006, 0.03), _onset(scene)
    step = scene.random.uniform(300, 1800)
    process = scene.run(total_of(warm(_level(scene), 600), stairs(rate, onset, step)))
    scene.leak(process, rate, onset)


@leaks
def random_steps(scene: Scene) -> None:
    """Blocks of random size at random times, as requests of one kind come."""
    rate, onset = _rate(scene, 0.008, 0.03), _onset(scene)
    moments, heights, time = [], [], onset
    while time < scene.duration:
        gap = scene.random.expovariate(1 / 400)
        time += gap
        moments.append(time)
        heights.append(rate / HOUR * 400 * scene.random.uniform(0.3, 1.7))
    levels = [0.0]
    for height in heights:
        levels.append(levels[-1] + height)
    base = warm(_level(scene), 600)

    def curve(age: float) -> float:
        return base(age) + levels[bisect_right(moments, age)]

    scene.leak(scene.run(curve), rate, onset)


@leaks
def under_saw(scene: Scene) -> None:
    """Garbage is collected, but not all of it."""
    rate, onset = _rate(scene, 0.008, 0.02), _onset(scene)
    teeth = saw(scene.random.uniform(0.02, 0.12), scene.random.uniform(120, 900))
    process = scene.run(total_of(warm(_level(scene), 600), teeth, ramp(rate, onset)))
    scene.leak(process, rate, onset)


@leaks
def late(scene: Scene) -> None:
    """All is well for hours."""
    rate = _rate(scene, 0.008, 0.04)
    onset = max(scene.random.uniform(5, 12) * HOUR, 6 * scene.interval)
    scene.duration = max(scene.duration, onset + 14 * HOUR)
    process = scene.run(total_of(warm(_level(scene), 900), ramp(rate, onset)))
    scene.leak(process, rate, onset)


@leaks
def one_of_many(scene: Scene) -> None:
    """Several processes, of which one leaks."""
    rate, onset = _rate(scene, 0.008, 0.03), _onset(scene)
    count = scene.random.randint(3, 12)
    for _ in range(count):
        scene.run(warm(0.4 / count, scene.random.uniform(60, 900)))
    process = scene.run(total_of(warm(0.08, 600), ramp(rate, onset)))
    scene.leak(process, rate, onset)


@leaks
def loss_in_process(scene: Scene) -> None:
    """3 % in 20 hours under a constant load, in the process."""
    rate, onset = 0.03 / 20, max(1800.0, 1.1 * scene.interval)
    scene.duration = onset + 20 * HOUR
    process = scene.run(total_of(warm(_level(scene), 600), ramp(rate, onset)))
    scene.leak(process, rate, onset)


@leaks
def loss_outside(scene: Scene) -> None:
    """3 % in 20 hours under a constant load, outside any process."""
    rate, onset = 0.03 / 20, max(1800.0, 1.1 * scene.interval)
    scene.duration = onset + 20 * HOUR
    scene.run(warm(_level(scene), 600))
    scene.unowned = ramp(rate, onset)
    scene.leak(None, rate, onset)


@leaks
def under_rhythm(scene: Scene) -> None:
    """A leak in a service whose load and memory follow the day."""
    scene.duration = max(scene.duration, 3 * DAY)
    peak, rate = scene.random.uniform(0, DAY), _rate(scene, 0.003, 0.01)
    onset = _onset(scene)
    memory = daily(0.15, scene.random.uniform(0.2, 0.35), peak)
    scene.activity = daily(0.25, 0.85, peak)
    process = scene.run(total_of(memory, ramp(rate, onset)))
    scene.leak(process, rate, onset, grown=0.55)


@leaks
def noisy(scene: Scene) -> None:
    """Requests come and go over a floor that rises."""
    rate, onset = _rate(scene, 0.008, 0.02), _onset(scene)
    process = scene.run(
        total_of(warm(_level(scene), 600), ramp(rate, onset)),
        jitter=scene.random.uniform(0.002, 0.008),
    )
    scene.leak(process, rate, onset)


@leaks
def with_evaluation(scene: Scene) -> None:
    """Training that leaks, with evaluation phases that need more."""
    rate, onset = _rate(scene, 0.008, 0.03), _onset(scene)
    every, lasts = scene.random.uniform(2400, 7200), scene.random.uniform(240, 700)
    extra = scene.random.uniform(0.05, 0.15)
    base = total_of(warm(_level(scene), 600), ramp(rate, onset))
    process = scene.run(lambda age: base(age) + (extra if age % every > every - lasts else 0.0))
    scene.leak(process, rate, onset)


@leaks
def with_gaps(scene: Scene) -> None:
    """Samples are missing, one by one and for an hour or two."""
    _linear(scene, 0.008, 0.03)
    random, dropped = scene.random, scene.random.uniform(0.05, 0.3)
    holes = [random.uniform(0, scene.duration) for _ in range(3)]
    length = max(HOUR, 2 * scene.interval)
    scene.keep = lambda time: (
        random.random() > dropped and not any(hole < time < hole + length for hole in holes)
    )


@leaks
def until_killed(scene: Scene) -> None:
    """It leaks until memory is full, is killed, and starts again."""
    rate, onset, level = _rate(scene, 0.02, 0.08), _onset(scene), 0.55
    life = onset + 0.4 / rate * HOUR
    curve = total_of(warm(level, 600), ramp(rate, onset))
    process = scene.run(curve, 0.0, life)
    scene.run(curve, life + 60, jitter=0.0)
    scene.leak(process, rate, onset)
    scene.duration = life + scene.random.uniform(0.2, 0.6) * HOUR


def _jobs(scene: Scene, residue: Curve, level: float = 0.4) -> float:
    """Jobs one after another; `residue` is what is left after so many. Returns the time of one."""
    lasts = max(scene.random.uniform(0.4, 1.5) * HOUR, scene.interval * 1.5)
    pause = max(scene.random.uniform(0.05, 0.3) * HOUR, scene.interval * 0.7)
    time, ends = 0.0, []
    while time < scene.duration:
        scene.run(warm(level, 300), time, time + lasts)
        time += lasts
        ends.append(time)
        time += pause
    scene.unowned = lambda now: residue(bisect_right(ends, now))
    starts = [end - lasts for end in ends]
    scene.activity = lambda now: (
        0.9 if (i := bisect_right(starts, now)) and now < ends[i - 1] else 0.0
    )
    return lasts + pause


@leaks
def residue_per_job(scene: Scene) -> None:
    """Every job leaves something behind."""
    scene.duration = max(scene.duration, 2 * DAY)
    each = scene.random.uniform(0.003, 0.012)
    period = _jobs(scene, lambda jobs: each * jobs)
    scene.leak(None, each / period * HOUR, period)


@leaks
def residue_per_job_busy(scene: Scene) -> None:
    """The same, while a server stays on the device."""
    residue_per_job(scene)
    scene.run(warm(0.1, 300))


@leaks
def orphaned_idle(scene: Scene) -> None:
    """46,111 of 262,128 MB on an idle GPU, from the first sample on."""
    share = scene.random.uniform(0.8, 1.2) * 46_111 / 262_128
    scene.unowned, scene.activity = lambda time: share, lambda time: 0.0
    scene.leak(None, 0.0, 0.0)


@leaks
def zombie(scene: Scene) -> None:
    """A process ends, its memory does not come back, and the device is idle."""
    end = max(scene.random.uniform(1.5, 5) * HOUR, 4 * scene.interval)
    level, left = scene.random.uniform(0.2, 0.7), scene.random.uniform(0.5, 1.0)
    scene.run(warm(level, 600), 0.0, end)
    scene.unowned = lambda time: level * left if time >= end else 0.0
    scene.activity = lambda time: 0.9 if time < end else 0.0
    scene.leak(None, 0.0, end)


@leaks
def zombie_among_others(scene: Scene) -> None:
    """The same while others work on the device."""
    zombie(scene)
    scene.activity = lambda time: 0.7
    for _ in range(scene.random.randint(1, 4)):
        scene.run(warm(0.05, 600))


@leaks
def without_activity(scene: Scene) -> None:
    """A leak where the activity is not reported."""
    _linear(scene, 0.008, 0.03)
    scene.activity = None


# ---- No leaks --------------------------------------------------------------------------------


def _lives(scene: Scene, life: Curve, low: float, high: float) -> None:
    """One process after another, each some hours long, so that many beginnings are seen."""
    time = 0.0
    while time < scene.duration:
        lasts = max(scene.random.uniform(low, high) * HOUR, 4 * scene.interval)
        scene.run(life, time, time + lasts)
        time += lasts + max(scene.random.uniform(20, 300), 0.3 * scene.interval)


@clean
def kv_cache(scene: Scene) -> None:
    """A server reserves 95 % when it starts."""
    scene.run(warm(scene.random.uniform(0.88, 0.96), scene.random.uniform(60, 400)))


@clean
def lazy_loading(scene: Scene) -> None:
    """Modules are loaded when first needed: many small steps, ever fewer."""
    random, level = scene.random, _level(scene)
    scale = random.uniform(600, 2400)

    def life() -> Curve:
        moments = [random.expovariate(1 / scale) for _ in range(random.randint(10, 40))]
        heights = [random.uniform(0.0003, 0.003) for _ in moments]
        return total_of(warm(level, 300), steps_at(moments, heights))

    time = 0.0
    while time < scene.duration:
        lasts = max(random.uniform(6, 30) * HOUR, 4 * scene.interval)
        scene.run(life(), time, time + lasts)
        time += lasts + 120


@clean
def warm_up(scene: Scene) -> None:
    """It takes up to an hour and a half until all is loaded."""
    _lives(scene, warm(_level(scene), scene.random.uniform(300, 5400)), 8, 40)


@clean
def pools(scene: Scene) -> None:
    """A caching allocator's high-water mark: it grows when a larger request than ever comes."""
    random, level = scene.random, _level(scene)
    span, size = random.uniform(0.02, 0.2), random.uniform(0.004, 0.02)

    def life(lasts: float) -> Curve:
        moments, heights, mark, age = [], [], 0.0, 0.0
        while age < lasts:
            age += random.expovariate(1 / 300)
            need = span * min(1.5, abs(random.gauss(0, 0.4)))
            if need > mark:
                grown = math.ceil((need - mark) / size) * size
                moments.append(age)
                heights.append(grown)
                mark += grown
        return total_of(warm(level, 300), steps_at(moments, heights))

    time = 0.0
    while time < scene.duration:
        lasts = max(random.uniform(8, 48) * HOUR, 4 * scene.interval)
        scene.run(life(lasts), time, time + lasts)
        time += lasts + 120


@clean
def evaluation(scene: Scene) -> None:
    """Training with evaluation phases that need more."""
    every, lasts = scene.random.uniform(2400, 14_400), scene.random.uniform(240, 2400)
    extra, base = scene.random.uniform(0.05, 0.3), warm(_level(scene), 600)
    scene.run(lambda age: base(age) + (extra if age % every > every - lasts else 0.0))


@clean
def longer_sequences(scene: Scene) -> None:
    """Sequences grow and level off, smoothly."""
    level, grown = _level(scene), scene.random.uniform(0.03, 0.4)
    scale = scene.random.uniform(0.3, 3) * HOUR
    life = total_of(warm(level, 600), lambda age: grown * (1 - math.exp(-age / scale)))
    _lives(scene, life, 10, 40)


@clean
def doubling_batch(scene: Scene) -> None:
    """The batch is doubled a few times."""
    level, every = _level(scene), scene.random.uniform(600, 5400)
    count = scene.random.randint(2, 5)
    last = scene.random.uniform(0.1, 0.2)
    moments = [every * (index + 1) for index in range(count)]
    heights = [last / 2 ** (count - 1 - index) for index in range(count)]
    _lives(scene, total_of(warm(level, 300), steps_at(moments, heights)), 8, 40)


@clean
def model_swap(scene: Scene) -> None:
    """One process serves models of different size in turns."""
    random = scene.random
    sizes = [random.uniform(0.05, 0.7) for _ in range(random.randint(2, 5))]
    moments, heights, time, size = [], [], 0.0, 0.0
    while time < scene.duration:
        moments.append(time)
        chosen = random.choice(sizes)
        heights.append(chosen - size)
        size = chosen
        time += random.expovariate(1 / (2 * HOUR))
    levels = [0.0, *accumulate(heights)]
    scene.run(lambda age: levels[bisect_right(moments, age)])


@clean
def restarts(scene: Scene) -> None:
    """A supervisor restarts it every few hours."""
    _lives(scene, warm(scene.random.uniform(0.3, 0.9), scene.random.uniform(60, 900)), 1, 8)


@clean
def day_and_night(scene: Scene) -> None:
    """Load and memory follow the day."""
    peak = scene.random.uniform(0, DAY)
    scene.activity = daily(0.25, 0.85, peak)
    scene.run(daily(0.2, scene.random.uniform(0.3, 0.8), peak))


@clean
def partition_change(scene: Scene) -> None:
    """The device is cut into partitions and put together again."""
    every = max(scene.random.uniform(3, 12) * HOUR, 6 * scene.interval)
    gib = scene.gib
    scene.total = lambda time: gib if time // every % 2 == 0 else gib / 8
    time = 0.0
    while time < scene.duration:
        scene.run(warm(0.06, 300), time + 60, time + every - 60)
        time += every


@clean
def missing_samples(scene: Scene) -> None:
    """Much is missing of a steady service with a saw."""
    random, dropped = scene.random, scene.random.uniform(0.1, 0.6)
    holes = [random.uniform(0, scene.duration) for _ in range(int(scene.duration / DAY * 2) + 1)]
    length = max(random.uniform(0.3, 4) * HOUR, 2 * scene.interval)
    scene.keep = lambda time: (
        random.random() > dropped and not any(hole < time < hole + length for hole in holes)
    )
    scene.run(total_of(warm(_level(scene), 600), saw(0.05, random.uniform(60, 2400))))


@clean
def clock_jumps(scene: Scene) -> None:
    """The clock is set, back and forth."""
    random = scene.random
    count = int(scene.duration / DAY * 2) + 1
    jumps = [
        (random.uniform(0, scene.duration), random.choice((-1, 1)) * random.uniform(30, 7200))
        for _ in range(count)
    ]
    scene.clock = lambda time: time + sum(by for moment, by in jumps if time >= moment)
    scene.run(total_of(warm(_level(scene), 600), saw(0.05, random.uniform(60, 1200))))


@clean
def pid_reuse(scene: Scene) -> None:
    """A pid comes back, each time as a larger process."""
    time, level, pid = 0.0, 0.1, scene.random.randrange(1000, 30_000)
    while time < scene.duration:
        lasts = max(scene.random.uniform(0.3, 3) * HOUR, 2 * scene.interval)
        process = scene.run(warm(level, 120), time, time + lasts)
        process.pid = pid
        level = level + 0.02 if level < 0.8 else 0.1
        time += lasts + 30


@clean
def noise(scene: Scene) -> None:
    """Requests come and go."""
    scene.run(warm(_level(scene), 600), jitter=scene.random.uniform(0.005, 0.05))


@clean
def wandering(scene: Scene) -> None:
    """Memory in use wanders, and comes back within minutes to an hour or so."""
    random, level = scene.random, _level(scene)
    memory, sigma = random.uniform(300, 3600), random.uniform(0.003, 0.03)
    state = [0.0, random.gauss(0, sigma)]

    def curve(age: float) -> float:
        kept = math.exp(-(age - state[0]) / memory)
        state[1] = state[1] * kept + random.gauss(0, sigma) * math.sqrt(1 - kept * kept)
        state[0] = age
        return level + max(-0.1, state[1])

    scene.run(curve, jitter=0.0)


@clean
def first_context(scene: Scene) -> None:
    """The driver keeps something after the first job, and no more after the others."""
    kept = scene.random.uniform(150, 700) / 1024 / scene.gib
    _jobs(scene, lambda jobs: kept if jobs else 0.0, scene.random.uniform(0.2, 0.9))


@clean
def collected(scene: Scene) -> None:
    """Fill up and be collected, in minutes to an hour and a half."""
    teeth = saw(scene.random.uniform(0.02, 0.3), scene.random.uniform(60, 5400))
    scene.run(total_of(warm(_level(scene), 600), teeth))


@clean
def many_jobs(scene: Scene) -> None:
    """Jobs share the device: more of them by day than by night."""
    random, peak = scene.random, scene.random.uniform(0, DAY)
    crowd = daily(0.5, 6, peak)
    scene.activity = daily(0.2, 0.9, peak)
    time = 0.0
    while time < scene.duration:
        time += random.expovariate(crowd(time) / HOUR)
        lasts = max(random.expovariate(1 / HOUR), 120)
        scene.run(warm(random.uniform(0.01, 0.06), 120), time, time + lasts)


@clean
def idle(scene: Scene) -> None:
    """Nobody is there."""
    scene.activity = lambda time: 0.0


@clean
def checkpoints(scene: Scene) -> None:
    """Short peaks, when a checkpoint is gathered."""
    every, extra = scene.random.uniform(900, 7200), scene.random.uniform(0.05, 0.3)
    base = warm(_level(scene), 600)
    scene.run(lambda age: base(age) + (extra if age % every < 60 else 0.0))


@clean
def collective_buffers(scene: Scene) -> None:
    """Buffers of the first collectives, graph captures and workspaces: some steps in two hours."""
    random, level = scene.random, _level(scene)

    def life() -> Curve:
        count = random.randint(2, 4)
        moments = sorted(random.uniform(300, 7200) for _ in range(count))
        return total_of(
            warm(level, 300),
            steps_at(moments, [random.uniform(0.002, 0.02) for _ in range(count)]),
        )

    time = 0.0
    while time < scene.duration:
        lasts = max(random.uniform(6, 30) * HOUR, 4 * scene.interval)
        scene.run(life(), time, time + lasts)
        time += lasts + 120


# ---- What can't be told apart ----------------------------------------------------------------


@limit
def unreported_rhythm(scene: Scene) -> None:
    """Memory follows the day, and the activity is not reported: the first morning is a climb."""
    day_and_night(scene)
    scene.activity = None


@limit
def long_ramp(scene: Scene) -> None:
    """A straight climb of 3 to 8 hours that stops."""
    level, lasts = _level(scene), scene.random.uniform(3, 8) * HOUR
    rate = scene.random.uniform(0.01, 0.05)
    scene.run(lambda age: level + rate * min(age, lasts) / HOUR)


@limit
def slow_saw(scene: Scene) -> None:
    """Garbage is collected after 3 to 12 hours: the first tooth is a climb."""
    teeth = saw(scene.random.uniform(0.05, 0.3), scene.random.uniform(3, 12) * HOUR)
    scene.run(total_of(warm(_level(scene), 600), teeth))
