"""Courses over time agree with what one gets by adding up small steps."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.simulation.signals import Signal, Timeline, wave

waves = st.builds(wave, st.floats(-2, 2), st.floats(0.5, 500), st.floats(0, 1))
signals = st.builds(Signal, st.floats(-5, 5), st.lists(waves, max_size=3).map(tuple))
times = st.floats(0, 1e4)


@given(signals, times, st.floats(0, 100))
@settings(deadline=None)
def test_integral_is_the_area(signal: Signal, start: float, length: float) -> None:
    """The closed formula gives what the midpoint rule gives with many points."""
    points = 4000
    step = length / points
    area = sum(signal.at(start + (i + 0.5) * step) for i in range(points)) * step
    assert area == pytest.approx(signal.integral(start, start + length), abs=0.01)


@given(st.lists(signals, min_size=3, max_size=3), times)
def test_total_goes_on_where_the_part_before_ended(parts: list[Signal], t: float) -> None:
    """A timeline's total is the sum over its parts."""
    timeline = Timeline(zip((0.0, 100.0, 2500.0), parts, strict=True))
    bounds = [0.0, min(t, 100.0), min(max(t, 100.0), 2500.0), max(t, 2500.0)]
    expected = sum(
        part.integral(start, min(end, t) if end > start else start)
        for part, start, end in zip(parts, (0.0, 100.0, 2500.0), bounds[1:], strict=True)
        if t > start
    )
    assert expected == pytest.approx(timeline.total(t), abs=1e-6)


@given(st.lists(signals, min_size=2, max_size=2), st.floats(1, 100), st.floats(1, 300))
def test_lag_follows_its_differential_equation(
    parts: list[Signal], inertia: float, t: float
) -> None:
    """What comes through a lag changes by the difference to its input, over its inertia."""
    timeline = Timeline(zip((0.0, 150.0), parts, strict=True))
    lagged = timeline.lagged(inertia)
    h = 1e-4
    if abs(t - 150) > 2 * h:
        slope = (lagged.at(t + h) - lagged.at(t - h)) / (2 * h)
        assert (timeline.at(t) - lagged.at(t)) / inertia == pytest.approx(slope, abs=1e-3)


def test_lag_does_not_jump() -> None:
    """Where the input jumps, the lagged value starts at the old one and nears the new one."""
    lagged = Timeline([(0.0, Signal(10.0)), (60.0, Signal(20.0))]).lagged(30.0)
    assert lagged.at(59.999) == pytest.approx(10.0)
    assert lagged.at(60.0) == pytest.approx(10.0)
    assert lagged.at(90.0) == pytest.approx(20 - 10 * exp(-1))
    assert lagged.at(600.0) == pytest.approx(20.0)
