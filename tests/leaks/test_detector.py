"""The detector: what it says of clear cases, and what must not change what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.leaks import Detector, ProcessUse, Sample, Thresholds, Verdict, Watch
from exporter.leaks.model import INSUFFICIENT
from tests.leaks.traces import CLEAN, GIBIBYTE, HOUR, LEAKS, PAGE, make

TOTAL = 64 * GIBIBYTE
START = 1_700_000_000.0
CLEAR = ("linear_one_percent", "linear_fast", "loss_in_process", "loss_outside", "orphaned_idle")


def verdict(samples: Iterable[Sample]) -> Verdict:
    """After all of them."""
    detector = Detector()
    for sample in samples:
        detector.observe(sample)
    return detector.verdict()


def kinds(samples: Iterable[Sample]) -> list[str]:
    """What is said after each."""
    detector = Detector()
    said: list[str] = []
    for sample in samples:
        detector.observe(sample)
        said.append(detector.verdict().kind)
    return said


def series(shares: Sequence[float], interval: float = 300.0, owned: bool = True) -> list[Sample]:
    """One process, or memory without an owner beside an idle one, as shares of the VRAM."""
    samples = []
    for index, share in enumerate(shares):
        amount = int(share * TOTAL) // PAGE * PAGE
        held = amount if owned else PAGE
        samples.append(
            Sample(
                START + index * interval,
                TOTAL,
                max(held, amount) + GIBIBYTE // 4,
                0.9,
                (ProcessUse(17, 5.0, held),),
            )
        )
    return samples


def climbing(count: int, rate: float, interval: float = 300.0) -> list[float]:
    """From 30 % on, a share per hour."""
    return [0.3 + rate * index * interval / HOUR for index in range(count)]


def test_process_that_grows_is_named() -> None:
    """1 % per hour: the process, its pace, since when, how long it can go on, and a sentence."""
    found = verdict(series(climbing(40, 0.01)))
    assert ("process", 17, True, False) == (found.kind, found.pid, found.process, found.residue)
    assert found.bytes_per_second == pytest.approx(0.01 * TOTAL / HOUR, rel=0.05)
    assert found.since_seconds is not None
    assert START + 1800 <= found.since_seconds <= START + 3600
    assert found.exhaustion_seconds == pytest.approx(66 * HOUR, rel=0.1)
    assert found.evidence.startswith("the floor of the memory of process 17 rose by ")


def test_memory_without_owner_that_grows_is_a_residue() -> None:
    """The same outside any process has no pid."""
    found = verdict(series(climbing(40, 0.01), owned=False))
    assert ("residue", None, False, True) == (
        found.kind,
        found.pid,
        found.process,
        found.residue,
    )


def test_orphans_on_idle_gpu() -> None:
    """46,111 of 262,128 MB with nobody there: named after a quarter of an hour."""
    mega = 1 << 20
    samples = [
        Sample(START + 60 * minute, 262_128 * mega, 46_111 * mega, 0.0, ()) for minute in range(30)
    ]
    assert ["none"] * 15 + ["residue"] * 15 == kinds(samples)
    found = verdict(samples)
    assert found.since_seconds == START
    assert found.unattributed_bytes == 46_111 * mega - int(0.01 * 262_128 * mega)


def test_zombie_and_its_end() -> None:
    """What an exit leaves is named after a quarter of an hour, and forgotten once it is freed."""
    work = [replace(s, time_seconds=START + 60.0 * i) for i, s in enumerate(series([0.5] * 120))]
    left = [
        replace(work[-1], time_seconds=START + 60.0 * i, processes=(), gfx_activity_ratio=0.0)
        for i in range(120, 180)
    ]
    freed = [replace(s, time_seconds=s.time_seconds + 3600, vram_used_bytes=1 << 28) for s in left]
    said = kinds([*work, *left, *freed])
    assert ["none"] * 135 + ["residue"] * 45 + ["none"] * 60 == said


def test_owners_that_are_hidden_are_no_leak() -> None:
    """Memory without a known owner on a GPU that works belongs to someone out of sight."""
    samples = [replace(s, processes=()) for s in series([0.5] * 100)]
    assert "none" == verdict(samples).kind


def test_without_any_owners_all_use_is_judged() -> None:
    """Where owners can't be known, growth is still told, but not whose; no residue is judged."""
    samples = [replace(s, processes=None) for s in series(climbing(40, 0.01))]
    found = verdict(samples)
    assert ("process", None, True, None) == (
        found.kind,
        found.pid,
        found.process,
        found.residue,
    )
    assert found.unattributed_bytes is None


def test_too_little_is_insufficient() -> None:
    """Unjudged is not clean."""
    found = verdict(series([0.3] * 5))
    assert Verdict(unattributed_bytes=0) == replace(found, growth_bytes_per_second=None)
    assert (INSUFFICIENT, None, None, False) == (
        found.evidence,
        found.process,
        found.residue,
        found.judged,
    )
    clean = verdict(series([0.3] * 40))
    assert ("none", False, False, True) == (
        clean.kind,
        clean.process,
        clean.residue,
        clean.judged,
    )


def test_leak_ends_when_memory_comes_back_or_rests() -> None:
    """Given back: clean at once. Flat: held for as long as it had grown, then clean."""
    leak = climbing(60, 0.01)
    assert "none" == verdict(series([*leak, *[0.3] * 4])).kind
    assert "process" == verdict(series([*leak, *[leak[-1]] * 24])).kind
    assert "none" == verdict(series([*leak, *[leak[-1]] * 120])).kind


def test_other_generation_or_size_starts_afresh() -> None:
    """After a reboot, a driver reload or a change of partitions nothing is known."""
    samples = series(climbing(40, 0.01))
    detector = Detector(generation="one")
    for sample in samples:
        detector.observe(sample, "one")
    assert "process" == detector.verdict().kind
    again = replace(samples[-1], time_seconds=samples[-1].time_seconds + 300)
    detector.observe(again, "two")
    assert INSUFFICIENT == detector.verdict().evidence
    half = replace(again, vram_total_bytes=TOTAL // 2, vram_used_bytes=0, processes=())
    assert INSUFFICIENT == verdict([*samples, half]).evidence


def test_reused_pid_is_another_process() -> None:
    """The same pid with another start time owes nothing to the one before."""
    samples = series(climbing(40, 0.01))
    other = [
        replace(
            s,
            time_seconds=s.time_seconds + 40 * 300,
            processes=tuple(use._replace(start_time=9.0) for use in s.processes or ()),
        )
        for s in samples[:4]
    ]
    assert "none" == verdict([*samples, *other]).kind


def test_late_doubled_and_set_back_times() -> None:
    """Late and doubled samples are left out; a clock set back by hours costs nothing."""
    samples = series(climbing(50, 0.01))
    odd = [s for sample in samples for s in (sample, sample)]
    late = [s for now, old in zip(samples[1:], samples, strict=False) for s in (now, old)]
    back = [
        replace(s, time_seconds=s.time_seconds - (7200 if index > 20 else 0))
        for index, s in enumerate(samples)
    ]
    assert verdict(samples) == verdict(odd)
    assert verdict(samples[1:]) == verdict(late)
    found = verdict(back)
    assert "process" == found.kind
    assert found.bytes_per_second == pytest.approx(0.01 * TOTAL / HOUR, rel=0.1)


@pytest.mark.parametrize("kind", CLEAR)
@given(seed=st.integers(0, 1 << 20), pages=st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_constant_changes_nothing(kind: str, seed: int, pages: int) -> None:
    """More in every process, and as much more in use, is the same story."""
    samples = make(kind, seed, 128, 300.0, 1).samples
    more = pages * PAGE
    shifted = [
        replace(
            s,
            vram_used_bytes=s.vram_used_bytes + more * len(s.processes or ()),
            processes=tuple(
                use._replace(vram_bytes=use.vram_bytes + more) for use in s.processes or ()
            ),
        )
        for s in samples
    ]
    assert kinds(samples) == kinds(shifted)


@pytest.mark.parametrize("kind", sorted({**LEAKS, **CLEAN}))
@given(seed=st.integers(0, 1 << 20))
@settings(max_examples=2, deadline=None)
def test_upside_down_is_no_process_leak(kind: str, seed: int) -> None:
    """The memory of the process that leaks, turned upside down, is given back, not leaked."""
    trace = make(kind, seed, 128, 900.0, 2)
    if trace.truth != "process" or kind == "until_killed":
        return
    pid = trace.pid
    turned = []
    for s in trace.samples:
        use = sum(u.vram_bytes for u in s.processes or () if u.pid == pid)
        turned.append(
            replace(
                s,
                vram_used_bytes=s.vram_total_bytes - use + GIBIBYTE // 4,
                vram_total_bytes=s.vram_total_bytes * 2,
                processes=(ProcessUse(17, 5.0, s.vram_total_bytes - use),),
            )
        )
    assert {"none"} == set(kinds(turned))


@pytest.mark.parametrize("kind", [*CLEAR, "kv_cache", "restarts", "evaluation"])
@given(seed=st.integers(0, 1 << 20))
@settings(max_examples=5, deadline=None)
def test_every_other_sample_is_enough(kind: str, seed: int) -> None:
    """Dropping every other sample does not change the verdict of a clear case."""
    trace = make(kind, seed, 192, 60.0, 1)
    whole, sparse = verdict(trace.samples), verdict(trace.samples[::2])
    assert trace.truth == whole.kind == sparse.kind
    assert trace.pid == whole.pid == sparse.pid


@given(seed=st.integers(0, 1 << 20), order=st.permutations(range(13)))
@settings(max_examples=5, deadline=None)
def test_order_of_processes_does_not_matter(seed: int, order: list[int]) -> None:
    """Owners come in any order, and in another one each time."""
    samples = make("one_of_many", seed, 256, 900.0, 2).samples
    shuffled = [
        replace(
            s,
            processes=tuple(
                sorted(s.processes or (), key=lambda use: order[(use.pid + index) % 13])
            ),
        )
        for index, s in enumerate(samples)
    ]
    assert kinds(samples) == kinds(shuffled)
    assert verdict(samples) == verdict(shuffled)


@pytest.mark.parametrize("kind", ["linear_slow", "zombie", "residue_per_job", "many_jobs"])
def test_kept_state_goes_on_as_if_nothing_had_happened(kind: str) -> None:
    """Through JSON and back at any moment, what is said afterwards is the same."""
    samples = make(kind, 3, 64, 900.0, 2).samples
    whole, cut = Watch(), len(samples) // 2
    for sample in samples[:cut]:
        whole.observe("0", sample, "boot")
    other = Watch.restore(json.loads(json.dumps(whole.dump())))
    assert whole.dump() == other.dump()
    for sample in samples[cut:]:
        assert whole.observe("0", sample, "boot") == other.observe("0", sample, "boot")


def damaged() -> list[object]:
    """Kept states with one part wrong each."""
    detector = Detector()
    for sample in series(climbing(40, 0.01)):
        detector.observe(sample)
    good = json.dumps(detector.dump())
    assert Detector.restore(json.loads(good)).dump() == json.loads(good)
    bad: list[object] = [None, [], {}, 7, "x"]
    bad.append(json.loads(good.replace('"version": 1', '"version": 2')))
    for name in json.loads(good):
        values: list[object] = [
            None,
            True,
            -1.5,
            "x",
            [],
            {},
            [[]],
            [1, 2, 3],
            1 << 60,
            float("nan"),
        ]
        for wrong in values:
            kept = json.loads(good)
            kept[name] = wrong
            bad.append(kept)
    return bad


def test_damaged_state_is_refused_or_whole() -> None:
    """Whatever is wrong in it, it is a ValueError, or a state that can be kept and used."""
    refused = 0
    for kept in damaged():
        try:
            detector = Detector.restore(kept)
        except ValueError:
            refused += 1
        else:
            detector.observe(series([0.3])[0])
            detector.verdict()
            json.dumps(detector.dump(), allow_nan=False)
    assert refused > 90


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_seconds": float("nan")},
        {"vram_used_bytes": -1},
        {"vram_total_bytes": 1 << 60},
        {"gfx_activity_ratio": 1.5},
        {"processes": (ProcessUse(1, 0.0, -5),)},
        {"processes": (ProcessUse(1, float("inf"), 5),)},
    ],
)
def test_impossible_sample_is_refused(wrong: dict[str, object]) -> None:
    """And leaves what was known as it is."""
    detector = Detector()
    sample = series([0.3])[0]
    detector.observe(sample)
    before = detector.dump()
    with pytest.raises(ValueError, match=r"expected|negative|activity"):
        detector.observe(replace(sample, **wrong))  # type: ignore[arg-type]  # wrong on purpose
    assert before == detector.dump()


def test_thresholds_say_why_and_refuse_nonsense() -> None:
    """Every threshold has a reason, and a range."""
    for each in fields(Thresholds):
        assert Thresholds.why(each.name).endswith(".")
    with pytest.raises(ValueError, match=r"growth_ratio: expected 0\.0001 to 0\.5"):
        Thresholds(growth_ratio=2)
