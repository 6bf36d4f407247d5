"""From samples to a verdict: the memory of one GPU (`Detector`), and of a node (`Watch`).

- A *process* leaks when the floor of its memory climbs steadily (`exporter.leaks.trend`).
- A *residue* is memory in use that no owner accounts for. It is a leak when it climbs steadily,
  when a process has exited and its memory has not come back, or when it lies on an idle GPU above
  what a driver holds (`exporter.leaks.residue`).

Time is what the samples say. One that is late or doubled is left out; a clock that was set back is
made up for, so that time here only goes forward; a clock set forward looks like a gap, and a gap
is no more than samples that are missing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from exporter.durations import format_duration
from exporter.leaks.floors import PAGE_BITS, WIDTHS, Floors
from exporter.leaks.kept import number, whole
from exporter.leaks.model import (
    HOUR,
    INSUFFICIENT,
    OTHERS,
    Kind,
    Sample,
    Thresholds,
    Verdict,
)
from exporter.leaks.residue import ProcessKey, Residue
from exporter.leaks.trend import WINDOWS, pace, rise

VERSION = 1
"""Of the kept state."""
MOST_PROCESSES = 64
"""How many processes of a GPU are followed; of more that come at once, the largest."""
_LATE = float(WIDTHS[0])
_CONFIRMATIONS = 2
_GIBIBYTE = 1 << 30
_DAY = 86_400.0
_CLEAN = "no floor rises steadily, and what is in use has an owner"


@dataclass(slots=True)
class _Suspicion:
    """A steady rise.

    Attributes:
        since: when it began.
        base, growth: pages at the start, and on top of it when last confirmed.
        rate: bytes per second.
        seen: when it was last confirmed.
        streak: how often in a row; a rise is named at the second time.
    """

    since: float
    base: int
    growth: int
    rate: float
    seen: float
    streak: int


@dataclass(frozen=True, slots=True)
class _Finding:
    """A leak, as the verdict tells it."""

    kind: Kind
    since: float
    rate: float
    pid: int | None
    evidence: str
    sure: bool


class _Track:
    """A series, and what is suspected of it.

    Attributes:
        born, seen: times of its first and latest sample.
        points: how many of the finest buckets there were.
        floors: the series.
        suspicion: a rise that was seen, named or not yet.
    """

    __slots__ = ("born", "floors", "points", "seen", "suspicion")

    def __init__(self, born: float) -> None:
        self.born = self.seen = born
        self.points = 0
        self.floors = Floors()
        self.suspicion: _Suspicion | None = None

    @property
    def named(self) -> _Suspicion | None:
        """The suspicion, once it is confirmed."""
        found = self.suspicion
        return found if found is not None and found.streak >= _CONFIRMATIONS else None

    def known(self, limits: Thresholds, lead: float = 0.0) -> bool:
        """It was watched for long enough, after a lead, for its silence to mean something."""
        return self.points >= WINDOWS[-1] and self.seen - self.born - lead >= limits.span_seconds

    def add(self, time: float, amount: int, load: float | None) -> bool:
        """Take a value; whether there is something new to judge."""
        began = self.floors.add(time, amount, load)
        self.points += began
        self.seen = time
        return began

    def judge(self, least: float, per_load: float, limits: Thresholds, lead: float = 0.0) -> None:
        """Bring the suspicion up to date; what was before the end of a lead does not count."""
        found = rise(self.floors, self.born + lead, least, per_load, limits)
        old = self.suspicion
        if found is not None:
            since, base, streak = found.since, found.base, 1
            if old is not None:
                since, base = min(old.since, since), min(old.base, base)
                streak = old.streak + 1
            growth = found.base + found.growth - base
            self.suspicion = _Suspicion(
                since, base, growth, found.bytes_per_second, self.seen, streak
            )
        elif old is not None:
            quiet = max(limits.hold_seconds, old.seen - old.since)
            floor = min(self.floors.levels[0].floors[-2:])
            if (
                old.streak < _CONFIRMATIONS
                or floor - old.base < old.growth / 2
                or self.seen - old.seen > quiet
            ):
                self.suspicion = None

    def dump(self) -> list[Any]:
        """As JSON."""
        s = self.suspicion
        kept = s and [s.since, s.base, s.growth, s.rate, s.seen, s.streak]
        return [self.born, self.seen, self.points, kept, self.floors.dump()]

    @classmethod
    def restore(cls, data: object) -> _Track:
        """Back from `dump`.

        Raises:
            ValueError: it is nothing that `dump` gives.
        """
        match data:
            case [born, seen, points, kept, floors]:
                track = cls(number(born))
                track.seen, track.points = number(seen), whole(points)
                track.floors = Floors.restore(floors)
            case _:
                raise ValueError(f"no series: {data!r:.80}")
        match kept:
            case None:
                pass
            case [since, base, growth, rate, last, streak]:
                track.suspicion = _Suspicion(
                    number(since),
                    whole(base),
                    whole(growth),
                    number(rate),
                    number(last),
                    whole(streak),
                )
            case _:
                raise ValueError(f"no suspicion: {kept!r:.80}")
        return track


class Detector:
    """What is known of one GPU, or one partition.

    Args:
        thresholds: when to speak.
        generation: what its memory is bound to (boot, driver load, partition mode); an `observe`
            with another one starts afresh.
    """

    def __init__(self, thresholds: Thresholds | None = None, generation: str = "") -> None:
        self._limits = thresholds or Thresholds()
        self._generation = generation
        self._forget(0)

    def _forget(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._offset = self._interval = 0.0
        self._last: float | None = None
        self._used: _Track | None = None
        self._unowned: _Track | None = None
        self._tracks: dict[ProcessKey, _Track] = {}
        self._residue = Residue()
        self._growth: float | None = None
        self._verdict: Verdict | None = None

    # ---- Samples -------------------------------------------------------------------------

    def observe(self, sample: Sample, generation: str | None = None) -> None:
        """Take the next sample.

        Raises:
            ValueError: it can't be: a negative amount, one beyond 2**53, no finite time.
        """
        _check(sample)
        if generation is not None and generation != self._generation:
            self._generation = generation
            self._forget(sample.vram_total_bytes)
        if sample.vram_total_bytes != self._total:
            self._forget(sample.vram_total_bytes)  # another partition mode, told or not
        time = self._forward(sample.time_seconds)
        if time is None:
            return
        self._verdict = None
        self._taken = sample.vram_used_bytes
        if self._used is None:
            self._used = _Track(time)
        fresh = self._used.add(time, sample.vram_used_bytes, sample.gfx_activity_ratio)
        if sample.processes is None:
            self._unowned, self._tracks, self._residue = None, {}, Residue()
        else:
            self._take_owners(time, sample)
        if fresh:
            self._judge()

    def _forward(self, told: float) -> float | None:
        """The time of a sample on a clock that only goes forward; None for one to leave out."""
        time = told + self._offset
        if self._last is not None:
            if time <= self._last:
                if time >= self._last - max(_LATE, 2 * self._interval):
                    return None
                self._offset += self._last + self._interval - time
                time = self._last + self._interval
            else:
                self._interval = time - self._last
        self._last = time
        return time

    def _take_owners(self, time: float, sample: Sample) -> None:
        activity = sample.gfx_activity_ratio
        holding: dict[ProcessKey, int] = {}
        for pid, start_time, vram in sample.processes or ():
            if vram:
                key = pid, start_time
                holding[key] = holding.get(key, 0) + vram
        for key, track in tuple(self._tracks.items()):
            # One that a single sample misses may be there again in the next.
            if key not in holding and time - track.seen > max(_LATE, 2 * self._interval):
                del self._tracks[key]
        for key in sorted(holding, key=lambda key: (-holding[key], key)):
            found = self._tracks.get(key)
            if found is None:
                if key[0] == OTHERS or len(self._tracks) >= MOST_PROCESSES:
                    continue
                found = self._tracks[key] = _Track(time)
            found.add(time, holding[key], activity)
        if not holding and activity is not None and activity > self._limits.idle_activity_ratio:
            return  # someone is at work whom nobody can see
        unowned = sample.vram_used_bytes - sum(holding.values())
        if self._unowned is None:
            self._unowned = _Track(time)
        self._unowned.add(time, unowned, float(len(holding)))
        self._residue.observe(time, unowned, holding, self._total, self._limits)

    def _judge(self) -> None:
        least, per_load = self._limits.growth(self._total), self._limits.load_ratio * self._total
        for track in self._tracks.values():
            if track.seen == self._last:
                track.judge(least, per_load, self._limits, self._limits.warm_up_seconds)
        if self._unowned is not None:
            if self._unowned.seen == self._last:
                self._unowned.judge(least, self._limits.context_bytes, self._limits)
        elif self._used is not None:
            self._used.judge(least, per_load, self._limits, self._limits.warm_up_seconds)
        if self._used is not None:
            self._growth = (
                pace(self._used.floors, self._limits) if self._used.known(self._limits) else None
            )

    # ---- Verdict -------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """What is thought after the latest sample."""
        if self._verdict is None:
            self._verdict = self._conclude()
        return self._verdict

    def _conclude(self) -> Verdict:
        if self._used is None:
            return Verdict()
        finding = self._leaking() or self._left_over()
        process, residue = self._judged()
        growth = self._growth
        rate = growth or 0.0
        if finding is not None:
            rate = max(rate, finding.rate)
        elif rate * _DAY < self._limits.growth(self._total):
            rate = 0.0
        verdict = Verdict(
            process=process,
            residue=residue,
            evidence=INSUFFICIENT if process is residue is None else _CLEAN,
            growth_bytes_per_second=growth,
            exhaustion_seconds=(self._total - self._taken) / rate if rate > 0 else None,
            unattributed_bytes=None
            if self._unowned is None
            else self._residue.unattributed(self._total, self._limits),
        )
        if finding is None:
            return verdict
        return replace(
            verdict,
            kind=finding.kind,
            evidence=finding.evidence,
            since_seconds=finding.since - self._offset,
            bytes_per_second=finding.rate,
            pid=finding.pid,
            confidence="high" if finding.sure else "medium",
        )

    def _present(self) -> dict[ProcessKey, _Track]:
        return {key: track for key, track in self._tracks.items() if track.seen == self._last}

    def _judged(self) -> tuple[bool | None, bool | None]:
        """Of each kind: suspected, judged and clean, or not judged yet."""
        limits, lead = self._limits, self._limits.warm_up_seconds
        used, unowned, orphan = self._used, self._unowned, self._residue.orphan
        watched = self._present().values() if unowned is not None else [used] if used else []
        process = residue = None
        if any(track.named for track in watched):
            process = True
        elif (used and used.known(limits)) and (
            not watched or any(track.known(limits, lead) for track in watched)
        ):
            process = False
        if unowned is not None:
            if unowned.named or (orphan and orphan.named):
                residue = True
            elif unowned.known(limits):
                residue = False
        return process, residue

    def _leaking(self) -> _Finding | None:
        """The process that leaks most."""
        if self._unowned is None:
            found = self._used and self._used.named
            whose, pid = "all use, whose owners are not known,", None
        else:
            present = self._present()
            leaking = {key: found for key, track in present.items() if (found := track.named)}
            if not leaking:
                return None
            key = max(leaking, key=lambda key: (leaking[key].rate, key))
            found, pid = leaking[key], key[0]
            whose = f"process {pid}"
        if not found:
            return None
        return self._rising("process", found, f"the memory of {whose}", pid)

    def _left_over(self) -> _Finding | None:
        """Memory that nobody owns."""
        orphan = self._residue.orphan
        if orphan is not None and orphan.named:
            if orphan.pid:
                what = f"process {orphan.pid} exited, and {_size(orphan.amount)} stayed in use"
            else:
                level = _size(orphan.level)
                what = (
                    f"{_size(orphan.amount)} are in use on an idle GPU beyond the {level} that "
                    "the driver is taken to hold"
                )
            assert self._last is not None  # noqa: S101 - there was a sample
            lasted = self._last - orphan.since
            rising = self._unowned and self._unowned.named
            return _Finding(
                "residue",
                orphan.since,
                rising.rate if rising else 0.0,
                None,
                f"{what}, without an owner for {_time(lasted)}",
                lasted > 4 * self._limits.settle_seconds,
            )
        rising = self._unowned and self._unowned.named
        if not rising:
            return None
        return self._rising("residue", rising, "memory without an owner", None)

    def _rising(self, kind: Kind, found: _Suspicion, what: str, pid: int | None) -> _Finding:
        growth = found.growth << PAGE_BITS
        return _Finding(
            kind,
            found.since,
            found.rate,
            pid,
            f"the floor of {what} rose by {_size(growth)} in "
            f"{_time(found.seen - found.since)}, at {_size(found.rate * HOUR)} per hour, steadily "
            "and without more load to explain it",
            growth >= 2 * self._limits.growth(self._total),
        )

    # ---- Keeping -------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """All that is known, as JSON."""
        return {
            "version": VERSION,
            "generation": self._generation,
            "total": self._total,
            "taken": self._taken,
            "clock": [self._offset, self._interval, self._last],
            "growth": self._growth,
            "used": self._used and self._used.dump(),
            "unowned": self._unowned and self._unowned.dump(),
            "processes": [[*key, track.dump()] for key, track in self._tracks.items()],
            "residue": self._residue.dump(),
        }

    @classmethod
    def restore(cls, data: object, thresholds: Thresholds | None = None) -> Detector:
        """Back from `dump`.

        Raises:
            ValueError: it is damaged, or of another version.
        """
        match data:
            case {
                "version": 1,
                "generation": str(generation),
                "total": total,
                "taken": taken,
                "clock": [offset, interval, last],
                "growth": growth,
                "used": used,
                "unowned": unowned,
                "processes": list(processes),
                "residue": residue,
            }:
                detector = cls(thresholds, generation)
            case _:
                raise ValueError(f"no state of version {VERSION}: {data!r:.80}")
        detector._total, detector._taken = whole(total), whole(taken)
        detector._offset, detector._interval = number(offset), number(interval)
        detector._last = None if last is None else number(last)
        detector._growth = None if growth is None else number(growth)
        detector._used = None if used is None else _Track.restore(used)
        detector._unowned = None if unowned is None else _Track.restore(unowned)
        detector._residue = Residue.restore(residue)
        if (last is None) is not (used is None) or len(processes) > MOST_PROCESSES:
            raise ValueError("the parts don't fit together")
        for each in processes:
            match each:
                case [pid, start_time, track]:
                    key = whole(pid), number(start_time)
                    detector._tracks[key] = _Track.restore(track)
                case _:
                    raise ValueError(f"no process: {each!r:.80}")
        return detector


class Watch:
    """The detectors of a node's GPUs and partitions, each by a name of the caller's choice."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self._thresholds = thresholds
        self._detectors: dict[str, Detector] = {}

    def observe(self, name: str, sample: Sample, generation: str) -> Verdict:
        """Take a sample of one device, and say what is thought of it.

        Raises:
            ValueError: the sample can't be.
        """
        detector = self._detectors.get(name)
        if detector is None:
            detector = self._detectors[name] = Detector(self._thresholds, generation)
        detector.observe(sample, generation)
        return detector.verdict()

    def keep(self, names: Collection[str]) -> None:
        """Forget the devices that are not among these."""
        for name in self._detectors.keys() - set(names):
            del self._detectors[name]

    def dump(self) -> dict[str, Any]:
        """All that is known, as JSON."""
        return {name: detector.dump() for name, detector in self._detectors.items()}

    @classmethod
    def restore(cls, data: object, thresholds: Thresholds | None = None) -> Watch:
        """Back from `dump`.

        Raises:
            ValueError: it is damaged, or of another version.
        """
        if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
            raise ValueError(f"no state of a node: {data!r:.80}")
        watch = cls(thresholds)
        for name, kept in data.items():
            watch._detectors[name] = Detector.restore(kept, thresholds)
        return watch


def _check(sample: Sample) -> None:
    number(sample.time_seconds)
    amounts = [sample.vram_total_bytes, sample.vram_used_bytes]
    for pid, start_time, vram in sample.processes or ():
        number(start_time)
        amounts += pid, vram
    if min(map(whole, amounts)) < 0:
        raise ValueError(f"a negative amount or pid: {sample!r:.200}")
    activity = sample.gfx_activity_ratio
    if activity is not None and not 0 <= activity <= 1:
        raise ValueError(f"an activity outside 0 to 1: {activity!r:.40}")


def _size(amount: float) -> str:
    return f"{amount / _GIBIBYTE:.2f} GiB"


def _time(seconds: float) -> str:
    return format_duration(round(seconds / 60) * 60)
