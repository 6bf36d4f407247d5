"""Durations as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.durations import LONGEST, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0.0),
        ("90m", 5400.0),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    """Units add up, and a count may exceed what the next unit holds."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "5 s",
        "-5s",
        "+5s",
        "1.5h",
        "5S",
        "5sec",
        "30m1h",
        "1s1s",
        "1h 30m",
        "٣s",
        "5s\n",
    ],
)
def test_parse_refuses(text: str) -> None:
    """Signs, fractions, spaces, foreign digits and units out of order are no durations."""
    with pytest.raises(ValueError, match="is no duration such as"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["5", "0", "2.5"])
def test_parse_names_the_missing_unit(text: str) -> None:
    """A bare number is told what it lacks."""
    with pytest.raises(ValueError, match="a unit is missing"):
        parse_duration(text)


def test_parse_refuses_the_endless() -> None:
    """What no clock can wait for is refused."""
    with pytest.raises(ValueError, match="'999999999999d' is longer than 3650d"):
        parse_duration("999999999999d")


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_format_refuses(seconds: float) -> None:
    """What is no duration has no text."""
    with pytest.raises(ValueError, match="a duration is not negative and ends"):
        format_duration(seconds)


@given(st.integers(0, int(LONGEST * 1000)))
def test_round_trip(milliseconds: int) -> None:
    """What is written is read back, to the millisecond."""
    seconds = milliseconds / 1000

    assert seconds == parse_duration(format_duration(seconds))


@given(st.text())
def test_any_text(text: str) -> None:
    """Any text is a duration or a ValueError."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return

    assert 0 <= seconds <= LONGEST
