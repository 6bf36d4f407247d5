"""Rates, shares and sums over time."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.analysis.derive import GAP, Derive
from exporter.collectors.base import Collector, Integral, Rate, Setting, Share
from exporter.sources.session import DeviceKey

from .nodes import ADDRESS, OTHER, PATIENT
from .polls import Reading, domain

KEY = DeviceKey(ADDRESS)
RATES = domain(Rate("rate", of="count"), Rate("rates", of="counts"))
CLOCKED = domain(Rate("rate", of="count", clock="clock"))
SHARES = domain(
    Share("share", of="count", over="ticks"), Share("shares", of="counts", over="ticks")
)
SUMS = domain(Integral("total", of="level"), Integral("totals", of="levels"))


def course(
    collector: Collector[Any], *readings: Reading, every: float = 5.0, derive: Derive | None = None
) -> list[Reading]:
    """The readings of polls at regular times, filled."""
    derive = derive or Derive(5.0, {})
    return [
        derive.fill(collector, KEY, reading, 100.0 + every * poll)
        for poll, reading in enumerate(readings)
    ]


def test_rate_over_the_last_poll() -> None:
    """The change over the time between two readings; the first has none."""
    filled = course(RATES, *(Reading(count=c, counts={"a": c}) for c in (100, 110, 110)))

    assert [None, 2.0, 0.0] == [reading.rate for reading in filled]
    assert [{}, {"a": 2.0}, {"a": 0.0}] == [reading.rates for reading in filled]


def test_rate_by_the_clock_of_the_hardware() -> None:
    """Where it has one that runs, it is the better clock."""
    filled = course(
        CLOCKED,
        Reading(count=0, clock=1.0),
        Reading(count=10, clock=3.0),
        Reading(count=20, clock=3.0),
        Reading(count=30),
        Reading(count=40, clock=1.0),
        Reading(count=50, clock=0.0),
    )

    assert [None, 5.0, 2.0, 2.0, 2.0, 2.0] == [reading.rate for reading in filled]


def test_a_reset_has_no_rate() -> None:
    """A counter that goes backwards is absent for this poll, and counted."""
    derive = Derive(5.0, {})
    readings = [Reading(count=c, counts={"a": c, "b": 1}) for c in (100, 40, 50)]
    filled = course(RATES, *readings, derive=derive)

    assert [None, None, 2.0] == [reading.rate for reading in filled]
    assert [{}, {"b": 0.0}, {"a": 2.0, "b": 0.0}] == [reading.rates for reading in filled]
    assert {"domain": 2} == derive.resets


def test_a_gap_has_no_rate() -> None:
    """What happened while nobody looked is not known."""
    readings = [Reading(count=c) for c in (0, 10, 20)]

    assert [None, 10 / 15, 10 / 15] == [r.rate for r in course(RATES, *readings, every=5 * GAP)]
    assert [None] * 3 == [r.rate for r in course(RATES, *readings, every=5 * GAP + 1)]


def test_time_that_stands_still_or_goes_back() -> None:
    """No change can be told then."""
    for every in (0.0, -5.0):
        assert [None, None] == [
            r.rate for r in course(RATES, Reading(count=1), Reading(count=2), every=every)
        ]


def test_a_value_absent_once() -> None:
    """The poll after it has none to compare with either."""
    filled = course(RATES, *(Reading(count=c) for c in (0, 10, None, 30, 40)))

    assert [None, 2.0, None, None, 2.0] == [reading.rate for reading in filled]


def test_devices_are_apart() -> None:
    """Each device, each partition and each collector has its own memory."""
    derive = Derive(5.0, {})
    for key in (KEY, DeviceKey(OTHER), DeviceKey(ADDRESS, "0")):
        for collector in (RATES, domain(Rate("rate", of="count"), name="other")):
            assert derive.fill(collector, key, Reading(count=1), 100.0).rate is None


def test_share() -> None:
    """How much of the ticks the count makes up: at most all of them."""
    filled = course(
        SHARES,
        Reading(count=0, counts={"a": 0}, ticks=0),
        Reading(count=25, counts={"a": 50}, ticks=100),
        Reading(count=300, counts={"a": 50}, ticks=200),
    )

    assert [None, 0.25, 1.0] == [reading.share for reading in filled]
    assert [{}, {"a": 0.5}, {"a": 0.0}] == [reading.shares for reading in filled]


@pytest.mark.parametrize("ticks", [7, 6, None])
def test_share_of_a_clock_that_stands(ticks: float | None) -> None:
    """Of no time, or of time that went backwards, there is no share."""
    filled = course(SHARES, Reading(count=0, ticks=7), Reading(count=5, ticks=ticks))

    assert filled[1].share is None


def test_integral() -> None:
    """The level of a poll counts for the time since the one before; the first poll counts 0."""
    filled = course(SUMS, *(Reading(level=x, levels={"a": x}) for x in (0.5, 0.5, 1.0, 0.0)))

    assert [0.0, 2.5, 7.5, 7.5] == [reading.total for reading in filled]
    assert [{"a": 0.0}, {"a": 2.5}, {"a": 7.5}, {"a": 7.5}] == [r.totals for r in filled]


def test_integral_of_what_is_absent() -> None:
    """Absent for now, and later it goes on from where it was."""
    filled = course(
        SUMS,
        Reading(level=1.0, levels={"a": 1.0}),
        Reading(level=1.0, levels={"a": 1.0, "b": 1.0}),
        Reading(),
        Reading(level=1.0, levels={"b": 1.0}),
        Reading(level=1.0, levels={"a": 1.0}),
    )

    assert [0.0, 5.0, None, 10.0, 15.0] == [reading.total for reading in filled]
    assert [{"a": 0.0}, {"a": 5.0, "b": 5.0}, {}, {"b": 10.0}, {"a": 10.0}] == [
        reading.totals for reading in filled
    ]


def test_integral_over_a_gap() -> None:
    """A gap counts nothing; no second is made up."""
    filled = course(SUMS, *(Reading(level=1.0) for _ in range(3)), every=60.0)

    assert [0.0, 0.0, 0.0] == [reading.total for reading in filled]


def test_sums_follow_shares() -> None:
    """A derived field can be the base of another: throttled seconds from the throttle share."""
    both = domain(Share("share", of="count", over="ticks"), Integral("total", of="share"))
    filled = course(both, *(Reading(count=c, ticks=t) for c, t in ((0, 0), (50, 100), (150, 200))))

    assert [None, 2.5, 7.5] == [reading.total for reading in filled]


def test_settings_stand_in_for_the_device() -> None:
    """Configured limits: for the sensors that there are and that have no limit of their own."""
    rule = Setting("fallback", "limit", where="levels", unless="limits")
    reading = Reading(levels={"a": 1.0, "b": 1.0, "d": 1.0}, limits={"a": 9.0})
    derive = Derive(5.0, {"limit": {"a": 5.0, "b": 6.0, "c": 7.0}})

    assert {"b": 6.0} == derive.fill(domain(rule), KEY, reading, 0.0).fallback
    assert {} == Derive(5.0, {}).fill(domain(rule), KEY, reading, 0.0).fallback


steps = st.floats(0.0, 30.0)
counts = st.none() | st.integers(0, 1 << 64)
levels = st.none() | st.floats(0.0, 1e6)


@PATIENT
@given(st.lists(st.tuples(steps, counts, counts, counts, levels), max_size=30))
def test_laws(polls: Sequence[tuple[float, Any, Any, Any, Any]]) -> None:
    """Whatever is read: rates are not negative, shares within 0 and 1, sums never decrease."""
    rules = domain(
        Rate("rate", of="count", clock="clock"),
        Share("share", of="count", over="ticks"),
        Integral("total", of="level"),
        Integral("totals", of="levels"),
    )
    derive = Derive(5.0, {})
    now = total = inner = 0.0
    resets = 0
    for step, count, ticks, clock, level in polls:
        now += step
        mapping = {} if level is None else {"a": level}
        reading = Reading(count=count, ticks=ticks, clock=clock, level=level, levels=mapping)
        filled = derive.fill(rules, KEY, reading, now)

        assert filled.rate is None or filled.rate >= 0
        assert filled.share is None or 0 <= filled.share <= 1
        assert (level is None) == (filled.total is None)
        if level is not None:
            assert total <= filled.total
            assert filled.total == filled.totals["a"]
            assert filled.total - total <= level * step * (1 + 1e-9) + 1e-6
            total, inner = filled.total, filled.totals["a"]
        assert total == inner
        assert resets <= derive.resets["domain"]
        resets = derive.resets["domain"]


@PATIENT
@given(st.lists(st.integers(0, 1 << 48), min_size=2, max_size=20))
def test_a_rate_is_the_change_over_time(growth: list[int]) -> None:
    """The rates of all polls, each times its interval, add up to the counter's growth."""
    values = [sum(growth[: n + 1]) for n in range(len(growth))]
    filled = course(RATES, *(Reading(count=value) for value in values))
    rates = [reading.rate for reading in filled[1:] if reading.rate is not None]

    assert pytest.approx(values[-1] - values[0]) == 5.0 * sum(rates)
