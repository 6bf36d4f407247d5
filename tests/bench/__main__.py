"""Measure, and print the figures beside the aims.

    python -m tests.bench [--quick] [--polls N] [--partitions 1 8]

The machine's noise is kept out where that can be: CPU time instead of the clock's, and the naive
poll between the exporter's polls, so that their ratio holds whatever else runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench.measure import DAEMON, Exporter, Naive, opens_of_metrics, samples
from tests.bench.phases import Phases
from tests.bench.scrape import Scrapes, scrape
from tests.kernel.node import Node, scratch

MODEL = "MI300X"
GPUS = 8
MEBIBYTE = 1 << 20
LEAST_SAMPLES = 1000
MOST_SHARE = 0.3
MOST_MEMORY = 96 * MEBIBYTE
MOST_GROWTH = MEBIBYTE
"""Bytes more that still count as none: the allocator's arenas breathe."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done for each figure.

    Attributes:
        warm: polls before anything is measured, so that what is read once has been read.
        rounds, polls: rounds of so many polls of the exporter and then of the naive poll.
        pages: renderings of each kind of page.
        scrapes: one after another, and under load 20 at a time.
        idle, slow: connections beside the scrapes under load.
        long: polls between the two looks at memory.
    """

    warm: int = 20
    rounds: int = 5
    polls: int = 20
    pages: int = 20
    scrapes: int = 2000
    idle: int = 200
    slow: int = 50
    long: int = 20_000


QUICK = Effort(warm=4, rounds=1, polls=3, pages=1, scrapes=20, idle=4, slow=2, long=10)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `good` is None where there is no aim."""

    figure: str
    value: str
    aim: str = ""
    good: bool | None = None

    def __str__(self) -> str:
        mark = {None: "", True: "met", False: "MISSED"}[self.good]
        return f"  {self.figure:<58} {self.value:>12}  {self.aim:<26} {mark}".rstrip()


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - before.get(name, 0.0) for name in after}


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _mebibytes(size: float) -> str:
    return f"{size / MEBIBYTE:.1f} MiB"


def cost_of_polls(exporter: Exporter, naive: Naive, effort: Effort) -> Iterator[Row]:
    """CPU per poll, and of the naive poll, in turns."""
    spent: dict[str, float] = {}
    naively = {True: 0.0, False: 0.0}
    made: dict[bool, int] = {}
    for _ in range(effort.rounds):
        before = exporter.cpu()
        exporter.poll(effort.polls)
        for name, seconds in _difference(exporter.cpu(), before).items():
            spent[name] = spent.get(name, 0.0) + seconds
        for links in naively:
            begin = naive.cpu()
            made[links] = naive.poll(effort.polls, links=links)
            naively[links] += naive.cpu() - begin
    polls = effort.rounds * effort.polls
    ours = sum(spent.values())
    yield Row("CPU of a poll, all processes", _milliseconds(ours / polls))
    for name in sorted(spent):
        yield Row(f"  {name}", _milliseconds(spent[name] / polls))
    for links, what in ((True, ""), (False, ", without links")):
        seconds = max(naively[links], 1e-9)
        share = ours / seconds
        yield Row(
            f"CPU of the naive poll{what} ({made[links]} calls)", _milliseconds(seconds / polls)
        )
        yield Row(
            f"CPU of a poll over that of the naive poll{what}",
            f"{share:.3f}",
            f"at most {MOST_SHARE}",
            share <= MOST_SHARE,
        )


def opens(exporter: Exporter, naive: Naive) -> Iterator[Row]:
    """How often gpu_metrics is opened, counted by the simulated kernel's rule `log`."""
    polls = 3
    per_call = opens_of_metrics(exporter.node, lambda: naive.tell("metrics"))
    ours = opens_of_metrics(exporter.node, lambda: exporter.poll(polls)) / polls / GPUS
    naively = opens_of_metrics(exporter.node, lambda: naive.poll(polls)) / polls / GPUS
    yield Row("opens of gpu_metrics per GPU and poll", f"{ours:.2f}", "1", ours == 1)
    yield Row("  by one call of the library alone", f"{per_call}")
    yield Row(
        "  so often is it read per GPU and poll", f"{ours / per_call:.2f}", "1", ours == per_call
    )
    yield Row("  opens by the naive poll", f"{naively:.2f}")


def cost_of_pages(exporter: Exporter, effort: Effort) -> Iterator[Row]:
    """Samples, and CPU per page."""
    count = samples(scrape(exporter.port).body)
    yield Row(
        "samples on the page", f"{count}", f"at least {LEAST_SAMPLES}", count >= LEAST_SAMPLES
    )
    for kind, cost in exporter.render(effort.pages).items():
        yield Row(
            f"CPU of a page, {kind}, {cost['bytes']:.0f} bytes", _milliseconds(cost["seconds"])
        )
        yield Row("  per sample", f"{cost['seconds'] / max(count, 1) * 1e6:.2f} µs")


@contextmanager
def polling(exporter: Exporter) -> Iterator[None]:
    """Poll once a second meanwhile."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(1.0):
            exporter.poll()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def latency(exporter: Exporter, effort: Effort) -> Iterator[Row]:
    """How long a scrape takes over HTTP, alone and under load, while the daemon polls."""

    def rows(what: str, done: Scrapes) -> Iterator[Row]:
        yield Row(f"scrapes {what}, p50", _milliseconds(done.percentile(0.5)))
        yield Row("  p99", _milliseconds(done.percentile(0.99)))
        yield Row("  failed", f"{done.failed}", "0", done.failed == 0)

    with polling(exporter):
        yield from rows("one after another", scrape(exporter.port, effort.scrapes))
        yield from rows(
            f"20 at a time, {effort.idle} idle, {effort.slow} slow",
            scrape(exporter.port, effort.scrapes, 20, idle=effort.idle, slow=effort.slow),
        )


def memory(exporter: Exporter, effort: Effort) -> Iterator[Row]:
    """Proportional memory at first and after many polls, each of them scraped once."""

    def look() -> Counter[str]:
        exporter.poll(effort.warm)
        scrape(exporter.port)
        return exporter.memory()

    first, files = look(), exporter.descriptors()
    for _ in range(effort.long // 10):
        exporter.poll(10)
        scrape(exporter.port)
    last = look()
    for what, held in (("at first", first), (f"after {effort.long} polls", last)):
        together = sum(held.values()) - held["anonymous"]
        yield Row(
            f"memory of all processes, {what}",
            _mebibytes(together),
            f"at most {_mebibytes(MOST_MEMORY)}",
            together <= MOST_MEMORY,
        )
        for name in sorted(held.keys() - {"anonymous"}):
            yield Row(f"  {name}", _mebibytes(held[name]))
    growth = last["anonymous"] - first["anonymous"]
    yield Row(
        "growth of anonymous memory",
        _mebibytes(growth),
        f"none (under {_mebibytes(MOST_GROWTH)})",
        growth < MOST_GROWTH,
    )
    more = exporter.descriptors() - files
    yield Row("more descriptors in the daemon", f"{more}", "0", more <= 0)


def phases(node: Node, effort: Effort) -> Iterator[str]:
    """Where the time of a poll goes, by process and part; a profile makes everything slower."""
    with tempfile.TemporaryDirectory() as notes, Exporter(node, notes=Path(notes)) as exporter:
        polls = effort.warm + effort.polls
        exporter.poll(polls - 1)  # the first was the daemon's own, at its start
        for process in sorted(exporter.processes(), key=lambda name: (name != DAEMON, name)):
            found = Phases(Path(notes, process))
            whole = sum(found.seconds.values())
            yield f"  {process:<64} {_milliseconds(whole / polls):>12}"
            for part, seconds in found.seconds.most_common():
                if seconds >= 0.01 * whole:
                    share = f"{seconds / whole:.0%}"
                    yield f"    {part:<56} {share:>5} {_milliseconds(seconds / polls):>12}"


def bench(partitions: int, effort: Effort) -> Iterator[str]:
    """All figures of one node, line by line."""
    with scratch() as tree:
        node = Node.create(tree, MODEL, GPUS, partitions=partitions)
        with Exporter(node) as exporter:
            exporter.poll(effort.warm)
            with Naive(node) as naive:
                naive.poll()
                yield from map(str, cost_of_polls(exporter, naive, effort))
                yield from map(str, opens(exporter, naive))
            yield from map(str, cost_of_pages(exporter, effort))
            yield from map(str, latency(exporter, effort))
        with Exporter(node) as exporter:
            yield from map(str, memory(exporter, effort))
        yield "  CPU of a poll by part, under a profiler"
        yield from phases(node, effort)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of a node of eight GPUs, and of the same node in CPX mode."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="few polls: see that it runs")
    parser.add_argument("--polls", type=int, help="between the two looks at memory")
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[1, 8], help="of each GPU: 1, 8, or both"
    )
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else Effort()
    if options.polls is not None:
        effort = replace(effort, long=options.polls)
    for partitions in options.partitions:
        what = (
            f"{GPUS} {MODEL}" if partitions == 1 else f"{GPUS * partitions} partitions of {MODEL}"
        )
        sys.stdout.write(f"{what}, AMD SMI 10.1\n")
        for line in bench(partitions, effort):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
