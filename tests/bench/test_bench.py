"""What the bench counts, asserted; what it times is only seen to be printed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exporter.collectors import COLLECTORS
from exporter.config import load
from exporter.daemon import Reader
from exporter.flags import parse
from exporter.sources.worker import reader_ids
from exporter.values import Absent, FieldValue
from tests.bench.__main__ import main
from tests.bench.measure import DAEMON, SUITE, Exporter, Naive, opens_of_metrics
from tests.bench.phases import Phases
from tests.kernel.launch import launcher
from tests.kernel.node import Node, scratch

GPUS = 2
POLLS = 12
SETTLED = 20
"""Polls after which ROCm SMI must rest, on a machine however busy; two are enough for most."""
FIGURES = (
    "CPU of a poll, all processes",
    "daemon",
    "amdsmi",
    "sysfs",
    "CPU of the naive poll",
    "CPU of a poll over that of the naive poll",
    "opens of gpu_metrics per GPU and poll",
    "samples on the page",
    "CPU of a page, text",
    "CPU of a page, openmetrics",
    "CPU of a page, gzip",
    "per sample",
    "scrapes one after another, p50",
    "scrapes 20 at a time",
    "p99",
    "failed",
    "memory of all processes, at first",
    "memory of all processes, after",
    "growth of anonymous memory",
    "more descriptors in the daemon",
    "CPU of a poll by part",
    "analysis/assembly",
)


@pytest.fixture(params=[1, 8])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Two GPUs, whole and in CPX mode."""
    with scratch() as tree:
        yield Node.create(tree, "MI300X", GPUS, partitions=request.param)


def settle(exporter: Exporter) -> None:
    """Poll until ROCm SMI rests, since the other sources give all that it could."""
    for _ in range(SETTLED):
        exporter.poll()
        if exporter.processes().keys() == {DAEMON, "amdsmi", "sysfs"}:
            return
    pytest.fail("ROCm SMI does not rest")


def test_every_figure_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The quick bench runs to its end."""
    main(["--quick", "--partitions", "1"])
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [] == [f for f in FIGURES if not any(line.startswith(f) for line in printed)]


def test_gpu_metrics_is_read_once_per_gpu_and_poll(node: Node) -> None:
    """By all processes together; one call of the library opens the file twice, whoever calls."""
    with Exporter(node) as exporter, Naive(node) as naive:
        settle(exporter)
        a_call = opens_of_metrics(node, lambda: naive.tell("metrics"))
        assert opens_of_metrics(node, lambda: exporter.poll(3)) == 3 * GPUS * a_call


def test_no_reader_runs_twice(node: Node, tmp_path: Path) -> None:
    """At most once per view and poll, those of slow facts seldom; the table is read once."""
    with Exporter(node, notes=tmp_path) as exporter:
        exporter.poll(POLLS - 1)  # the first was the daemon's own, at its start
    for source in ("amdsmi", "sysfs"):
        calls = Phases(tmp_path / source).calls
        ran = 0
        for collector, reader in reader_ids().values():
            if reader.source != source:
                continue
            views = GPUS * (node.partitions + 1 if reader.per_partition else 1)
            polls = math.ceil(POLLS * 5 / reader.every) if reader.every else POLLS
            times = calls[f"collectors/{collector}:{reader.read.__name__}"]
            assert times <= views * polls, (collector, reader)
            ran += times
        assert ran
    calls = Phases(tmp_path / "amdsmi").calls
    assert calls["sources/amdsmi:read"] == GPUS * POLLS


def _given(fields: dict[str, FieldValue]) -> set[tuple[str, str]]:
    """The fields, and the keys in them, that have a value."""
    return {
        (name, key)
        for name, value in fields.items()
        for key, item in (value.items() if isinstance(value, dict) else [("", value)])
        if not isinstance(item, Absent)
    }


def test_a_reader_that_others_outdo_is_not_asked(node: Node) -> None:
    """Each that is asked gives a value that is used, or is the only hope for one."""
    config = load(parse(["serve"], COLLECTORS), COLLECTORS)
    reading = Reader(config, launcher(SUITE, node.root))
    try:
        for _ in range(SETTLED):
            node.advance(5)
            snapshot = reading.poll()
            if resting := {report.name for report in snapshot.sources if report.paused}:
                break
    finally:
        reading.stop()
    assert {"rocm_smi"} == resting
    used = {
        (source, collector, name, key)
        for device in snapshot.devices
        for (collector, name, key), source in device.origins.items()
    }
    for report in snapshot.sources:
        given: dict[str, set[tuple[str, str]]] = {}
        for answer in report.answers.values():
            for by_reader in answer.readings.values():
                for reader, fields in by_reader.items():
                    given.setdefault(reader, set()).update(_given(dict(fields)))
        for reader, places in given.items():
            collector = reader.partition("/")[0]
            chosen = [place for place in places if (report.name, collector, *place) in used]
            assert chosen or not places, f"{reader} is asked in vain"


def test_descriptors_do_not_grow(node: Node) -> None:
    """Neither the daemon's nor the workers', poll after poll."""
    with Exporter(node) as exporter:
        settle(exporter)

        def opened() -> dict[str, int]:
            found: dict[str, int] = {}
            for name, process in exporter.processes().items():
                with contextlib.suppress(psutil.NoSuchProcess):  # it has come to rest just now
                    found[name] = process.num_fds()
            return found

        before = opened()
        exporter.poll(200)
        after = opened()
        assert {name: before[name] for name in before.keys() & after.keys()} == after
