"""How good is the detector: `python -m tests.leaks.bench [--calibrate] [--quick]`.

Kinds of traces and seeds are each cut in two: every other kind by name, of the leaks and of the
rest, and seeds below and from 20,000. Thresholds were chosen by looking at the first half of the
kinds with the first half of the seeds alone (`--calibrate`); the report is over the other half of
both. Whoever changes a threshold keeps to that, and once the report has led to a change,
`REPORT_SEEDS` moves on.

A trace is streamed sample by sample. A leak is found when its kind, and for a process its pid, is
named after it began; anything else that is named, at any time, is a false alarm.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from exporter.leaks import Detector
from tests.leaks.cost import evaluation, kept, memory
from tests.leaks.practices import RULES, alarms
from tests.leaks.traces import CLEAN, HOUR, INTERVALS, LEAKS, LIMITS, MEBIBYTE, TOTALS, Trace, make

REPORT_SEEDS = 20_000
"""Where the seeds of the report begin."""
SEEDS = 21
"""How many each kind has: three of each interval, four of each size."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trace.

    Attributes:
        found: when the leak was named, in seconds after its onset; None where it was not.
        false: how many times something was named that is not so.
        last: the kind that stands at the end.
    """

    found: float | None
    false: int
    last: str = "none"


def judge(trace: Trace) -> Outcome:
    """Stream a trace through the detector."""
    detector = Detector()
    found, false = None, 0
    before: tuple[str, int | None] = "none", None
    for sample in trace.samples:
        detector.observe(sample)
        verdict = detector.verdict()
        named = verdict.kind, verdict.pid
        if named == before:
            continue
        before = named
        if verdict.kind == "none":
            continue
        right = named == (trace.truth, trace.pid) and sample.time_seconds >= trace.onset
        if not right:
            false += 1
        elif found is None:
            found = sample.time_seconds - trace.onset
    return Outcome(found, false, before[0])


def practise(name: str, trace: Trace) -> Outcome:
    """Stream a trace through a public practice."""
    times = alarms(name, trace.samples)
    if trace.truth == "none":
        return Outcome(None, len(times))
    good = [at for at in times if at >= trace.onset]
    return Outcome(good[0] - trace.onset if good else None, len(times) - len(good))


def half(kinds: Iterable[str], second: bool) -> list[str]:
    """Every other kind by name."""
    return sorted(kinds)[int(second) :: 2]


def suite(kinds: Sequence[str], seeds: range) -> Iterator[Trace]:
    """Traces of each kind, over sizes and intervals in turns."""
    for kind in kinds:
        for seed in seeds:
            # Neighbouring seeds differ in both, and close samples are as frequent as far ones.
            yield make(kind, seed, TOTALS[seed % len(TOTALS)], INTERVALS[seed % len(INTERVALS)])


def allowed(trace: Trace) -> float | None:
    """The delay that is aimed at, in seconds; None where there is no aim."""
    if trace.kind.startswith("loss_"):
        return 20 * HOUR
    if trace.rate >= 0.0099:
        return 2 * HOUR if trace.interval <= 300 else 8 * trace.interval
    return None


@dataclass(slots=True)
class Tally:
    """Counts over traces."""

    traces: int = 0
    leaks: int = 0
    found: int = 0
    false: int = 0
    late: int = 0
    aimed: int = 0
    late_fine: int = 0
    aimed_fine: int = 0

    def add(self, trace: Trace, outcome: Outcome) -> None:
        """Count one."""
        self.traces += 1
        self.leaks += trace.truth != "none"
        self.found += outcome.found is not None
        self.false += outcome.false > 0
        limit = allowed(trace)
        if trace.truth != "none" and limit is not None:
            self.aimed += 1
            # A sample's time may be off by as much as the generator's jitter.
            late = outcome.found is None or outcome.found > limit * 1.02
            self.late += late
            if trace.interval <= 300:
                self.aimed_fine += 1
                self.late_fine += late

    @property
    def precision(self) -> float:
        """Of all that was named, how much was right."""
        named = self.found + self.false
        return self.found / named if named else 1.0

    @property
    def recall(self) -> float:
        """Of all leaks, how many were named."""
        return self.found / self.leaks if self.leaks else 1.0


def report(traces: Iterable[Trace], practices: Sequence[str]) -> Iterator[str]:
    """Lines of the table: per kind, then the sums beside the practices."""
    sums = {name: Tally() for name in ("detector", *practices)}
    kinds: dict[str, dict[str, Tally]] = {}
    delays: dict[str, list[float]] = {}
    for trace in traces:
        of_kind = kinds.setdefault(trace.kind, {name: Tally() for name in sums})
        for name in sums:
            outcome = judge(trace) if name == "detector" else practise(name, trace)
            sums[name].add(trace, outcome)
            of_kind[name].add(trace, outcome)
            if name == "detector" and outcome.found is not None:
                delays.setdefault(trace.kind, []).append(outcome.found / HOUR)
    names = "".join(f"{name:>16}" for name in practices)
    yield f"{'kind':<22}{'traces':>7}{'found':>7}{'false':>7}{'late':>9}{'delay h':>16}{names}"
    for kind, tallies in kinds.items():
        own, hours = tallies["detector"], delays.get(kind)
        delay = f"{median(hours):.1f} (max {max(hours):.1f})" if hours else ""
        found = str(own.found) if own.leaks else "-"
        late = f"{own.late}/{own.aimed}" if own.aimed else ""
        others = "".join(
            f"{f'{t.found} / {t.false}' if own.leaks else f'- / {t.false}':>16}"
            for name in practices
            for t in (tallies[name],)
        )
        yield f"{kind:<22}{own.traces:>7}{found:>7}{own.false:>7}{late:>9}{delay:>16}{others}"
    yield ""
    yield f"{'':<22}{'precision':>10}{'recall':>10}{'late':>10}{'up to 5 min':>14}"
    for name, tally in sums.items():
        yield (
            f"{name:<22}{tally.precision:>10.3f}{tally.recall:>10.3f}"
            f"{f'{tally.late}/{tally.aimed}':>10}{f'{tally.late_fine}/{tally.aimed_fine}':>14}"
        )


def false_alarms(kinds: Sequence[str], days: float, seed: int) -> Iterator[tuple[str, int, float]]:
    """Kind, false alarms, and days watched: over traces of ten days, of all intervals."""
    for kind in kinds:
        watched, false = 0.0, 0
        while watched < days:
            seed += 1
            interval = (60.0, 300.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)[seed % 7]
            span = min(10.0, days - watched)
            trace = make(kind, seed, TOTALS[seed % len(TOTALS)], interval, span)
            watched += span
            false += judge(trace).false
        yield kind, false, watched


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the exit status is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.leaks.bench", description=__doc__)
    parser.add_argument("--calibrate", action="store_true", help="the half that may be looked at")
    parser.add_argument("--quick", action="store_true", help="fewer seeds and days")
    parser.add_argument("--seeds", type=int, help="seeds per kind")
    parser.add_argument("--days", type=float, help="simulated days per kind that is no leak")
    parser.add_argument("--kinds", nargs="*", help="these alone")
    given = parser.parse_args(arguments)
    second = not given.calibrate
    leaks, clean = half(LEAKS, second), half(CLEAN, second)
    if given.kinds:
        leaks, clean = ([k for k in each if k in given.kinds] for each in (leaks, clean))
    first = REPORT_SEEDS if second else 0
    count = given.seeds or (7 if given.quick else SEEDS)
    started = time.process_time()
    for line in report(suite((*leaks, *clean), range(first, first + count)), tuple(RULES)):
        _say(line)
    days = (20.0 if given.quick else 200.0) if given.days is None else given.days
    total = 0
    if days:
        _say("")
        _say(f"false alarms in {days:g} simulated days")
        for kind, false, _ in false_alarms(clean, days, first + 1000):
            total += false
            _say(f"{kind:<22}{false:>7}")
    _say("\nwhat can't be told apart: traces, traces with an alarm, alarms that stand at the end")
    for kind in LIMITS:
        outcomes = [judge(trace) for trace in suite([kind], range(first, first + count))]
        wrong = sum(outcome.false > 0 for outcome in outcomes)
        standing = sum(outcome.last != "none" for outcome in outcomes)
        _say(f"{kind:<22}{len(outcomes):>7}{wrong:>7}{standing:>7}")
    if not given.kinds:
        cpu, size = evaluation(8, 32, 32, 24, 60), 8 * memory(32, 24, 60)
        state = 64 * kept(32, 28 * 24, 4800)
        _say("\n8 GPUs with 32 processes over 24 h, all leaking; state of 64 partitions with 32")
        _say(
            f"{cpu * 1e3:.0f} ms of CPU per evaluation, {size / MEBIBYTE:.1f} MiB; "
            f"{state / MEBIBYTE:.1f} MiB"
        )
    _say(f"\n{time.process_time() - started:.0f} s of CPU")
    return int(total > 0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
