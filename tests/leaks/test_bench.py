"""The benchmark's aims on a quick subset, its honesty, and what the detector costs."""

from __future__ import annotations

import pytest

from exporter.leaks import Sample
from tests.leaks.bench import REPORT_SEEDS, SEEDS, Tally, false_alarms, half, judge, main, suite
from tests.leaks.cost import evaluation, kept, memory
from tests.leaks.practices import RULES, alarms
from tests.leaks.traces import CLEAN, HOUR, INTERVALS, LEAKS, TOTALS, make

MEBIBYTE = 1 << 20


def test_there_are_enough_kinds_and_traces() -> None:
    """At least 25 kinds, and 300 traces in the half that is reported."""
    assert len({**LEAKS, **CLEAN}) >= 25
    kinds = half(LEAKS, True) + half(CLEAN, True)
    assert len(kinds) * SEEDS >= 300
    assert not set(kinds) & set(half(LEAKS, False) + half(CLEAN, False))
    assert {*LEAKS, *CLEAN} == {*kinds, *half(LEAKS, False), *half(CLEAN, False)}


@pytest.mark.parametrize("kind", sorted({**LEAKS, **CLEAN}))
def test_traces_are_the_same_every_time(kind: str) -> None:
    """A kind, a seed, a size and an interval make one trace."""
    trace = make(kind, REPORT_SEEDS, TOTALS[0], INTERVALS[-1])
    assert trace == make(kind, REPORT_SEEDS, TOTALS[0], INTERVALS[-1])
    assert trace.samples != make(kind, REPORT_SEEDS + 1, TOTALS[0], INTERVALS[-1]).samples
    assert len(trace.samples) >= 8
    assert (kind in LEAKS) == (trace.truth != "none")


def test_precision_and_recall_over_all_kinds() -> None:
    """Both at least 0.97, over every kind, at intervals of a minute and of a quarter of an hour."""
    tally = Tally()
    for kind in (*LEAKS, *CLEAN):
        for seed in (1, 3):  # 60 s and 900 s
            (trace,) = suite([kind], range(seed, seed + 1))
            tally.add(trace, judge(trace))
    assert (tally.precision, tally.recall) >= (0.97, 0.97)


@pytest.mark.parametrize("interval", [15.0, 60.0, 300.0])
@pytest.mark.parametrize("gib", [64, 288])
@pytest.mark.parametrize("seed", [1, 2])
def test_one_percent_per_hour_is_named_within_two_hours(
    interval: float, gib: int, seed: int
) -> None:
    """After warm-up, at samples of 5 minutes and finer."""
    found = judge(make("linear_one_percent", seed, gib, interval)).found
    assert found is not None
    assert found <= 2 * HOUR


@pytest.mark.parametrize("kind", ["loss_in_process", "loss_outside"])
@pytest.mark.parametrize("interval", INTERVALS[1:])
def test_loss_of_three_percent_is_named_before_its_end(kind: str, interval: float) -> None:
    """3 % in 20 hours, also where someone writes it down every two hours."""
    found = judge(make(kind, 1, 64, interval)).found
    assert found is not None
    assert found <= 20 * HOUR


@pytest.mark.parametrize("kind", ["kv_cache", "restarts", "day_and_night", "first_context"])
def test_no_false_alarm_in_ten_days(kind: str) -> None:
    """The rest of the 200 days is the benchmark's."""
    assert [(kind, 0, 10.0)] == list(false_alarms([kind], 10, 100))


def test_practices_alarm_on_a_climb() -> None:
    """They are what they claim to be: on a clear and fast climb each of them alarms."""
    samples = [
        Sample(300.0 * index, 64 << 30, int((0.3 + index / 400) * (64 << 30)), None, None)
        for index in range(150)
    ]
    assert dict.fromkeys(RULES, 1) == {name: len(alarms(name, samples)) for name in RULES}


def test_report_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a line per kind, and the sums beside the practices."""
    arguments = ["--calibrate", "--seeds", "1", "--days", "1", "--kinds", "late", "idle"]
    assert 0 == main(arguments)
    out = capsys.readouterr().out
    assert {"kind", "late", "idle", "detector", *RULES} <= {
        line.split()[0] for line in out.splitlines() if line
    }


def test_cost() -> None:
    """8 GPUs with 32 processes each, all leaking, over 24 hours: 50 ms of CPU and 10 MiB.

    The buckets of a year are those of four weeks: 64 partitions with as many processes keep less
    than 5 MiB.
    """
    assert evaluation(8, 32, 32, 24, 900) < 0.05
    assert 8 * memory(32, 24, 900) < 10 * MEBIBYTE
    assert 64 * kept(32, 28 * 24, 4800) < 5 * MEBIBYTE
