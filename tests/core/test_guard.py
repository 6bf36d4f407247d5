"""The guard: what is a value, what is the mark for none, and what can't be true."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.guard import (
    celsius,
    counter,
    first,
    item,
    limit_celsius,
    mean,
    megahertz,
    number,
    percent,
    text,
    watts,
)
from exporter.values import (
    ERROR,
    IMPLAUSIBLE,
    NOT_SUPPORTED,
    REASONS,
    SENTINEL,
    STALE,
    Absent,
)

from .nodes import PATIENT, reason

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "raw",
    [0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, -1, 65535.0],
)
def test_all_ones_mean_no_value(raw: float) -> None:
    """All ones of any width are the vendors' mark, as a number, and as text from a file."""
    assert SENTINEL == reason(number(raw))
    assert SENTINEL == reason(number(f" {int(raw)}\n"))
    assert SENTINEL == reason(text(int(raw)))


@pytest.mark.parametrize("raw", ["N/A", "n/a", " N/A ", "", " \n", "None", "unknown"])
def test_texts_that_mean_no_value(raw: str) -> None:
    """So are the usual words, for numbers and for names."""
    assert SENTINEL == reason(number(raw))
    assert SENTINEL == reason(text(raw))
    assert SENTINEL == reason(item(raw, "key"))


@pytest.mark.parametrize(
    ("bits", "values", "marks"),
    [
        (16, [0xFFFE], [0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1]),
        (32, [0xFFFF, 0xFFFFFFFE], [0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1]),
        (64, [0xFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE], [(1 << 64) - 1, -1]),
    ],
)
def test_counters_by_width(bits: int, values: list[int], marks: list[int]) -> None:
    """A counter may pass through the mark of a narrower field, but not of its own or a wider."""
    assert values == [counter(raw, bits=bits) for raw in values]
    assert [SENTINEL] * len(marks) == [reason(counter(raw, bits=bits)) for raw in marks]


def test_a_counter_is_scaled_to_its_end() -> None:
    """The highest count is still one in base units, and none is negative."""
    assert ((1 << 64) - 2) * 1024 == counter((1 << 64) - 2, bits=64, scale=1024)
    assert IMPLAUSIBLE == reason(counter(-2, bits=64))


@pytest.mark.parametrize(
    ("convert", "low", "high"),
    [
        (celsius, -40, 150),
        (percent, 0, 100),
        (watts, 0, 5000),
        (megahertz, 0, 20_000),
    ],
)
def test_plausible_ranges(convert: object, low: int, high: int) -> None:
    """Both ends belong to a range; beyond them nothing can be true."""
    assert callable(convert)
    assert not isinstance(convert(low), Absent)
    assert not isinstance(convert(high), Absent)
    assert IMPLAUSIBLE == reason(convert(low - 2))
    assert IMPLAUSIBLE == reason(convert(high + 1))


def test_units() -> None:
    """Base units: ratios, degrees from millidegrees, hertz, watts from microwatts."""
    assert pytest.approx(0.57) == percent(57)
    assert 43.0 == celsius("43000", scale=0.001)
    assert 2_100_000_000 == megahertz(2100)
    assert 750.0 == watts(750_000_000, scale=1e-6)


def test_a_limit_of_zero_is_none() -> None:
    """Firmware without limits says 0; a temperature may be 0."""
    assert SENTINEL == reason(limit_celsius(0))
    assert 105.0 == limit_celsius(105_000, scale=0.001)
    assert 0 == celsius(0)


@pytest.mark.parametrize("raw", [True, False, None, [], {}, b"1", object(), "1 W", "0x1f", "--5"])
def test_no_numbers(raw: object) -> None:
    """Neither truth values nor containers nor other text are numbers."""
    assert IMPLAUSIBLE == reason(number(raw))


@pytest.mark.parametrize("raw", [math.nan, math.inf, -math.inf, "nan", "1e999", "9" * 400, 1 << 64])
def test_numbers_that_no_field_holds(raw: object) -> None:
    """Not finite, or beyond 64 bits."""
    assert IMPLAUSIBLE == reason(number(raw))
    assert IMPLAUSIBLE == reason(number(raw, scale=0.5))


def test_an_absence_is_passed_on() -> None:
    """What is absent stays so, with its own reason."""
    gone = Absent(STALE, "old")

    assert gone == number(gone)
    assert gone == text(gone)
    assert gone == item(gone, "key")
    assert gone == percent(gone)
    assert gone == limit_celsius(gone)


@PATIENT
@given(anything, st.floats(1e-9, 1e9))
def test_number_is_a_finite_number_or_a_reason(raw: object, scale: float) -> None:
    """Whatever a vendor answers, nothing else comes out, and nothing is raised."""
    for value in (number(raw, scale=scale), counter(raw, bits=64, scale=scale), celsius(raw)):
        if isinstance(value, Absent):
            assert value.reason in REASONS
        else:
            assert not isinstance(value, bool)
            assert math.isfinite(value)


@PATIENT
@given(st.floats(allow_nan=True) | st.integers(), st.floats(-100, 0), st.floats(0, 100))
def test_number_stays_in_its_range(raw: float, low: float, high: float) -> None:
    """A value is within the range that was asked for."""
    value = number(raw, low=low, high=high)

    assert isinstance(value, Absent) or low <= value <= high


@PATIENT
@given(anything)
def test_text_is_printable_and_short(raw: object) -> None:
    """A name can stand as a label: printable, at most 128 characters, trimmed, never empty."""
    value = text(raw)

    if isinstance(value, Absent):
        assert SENTINEL == value.reason
    else:
        assert value.isprintable()
        assert 1 <= len(value) <= 128
        assert value == text(value)


def test_text_of_names() -> None:
    """White space and control characters go, long names are cut, numbers are written out."""
    assert "MI300X" == text(" MI\x00300X\n")
    assert "a" * 128 == text("a" * 300)
    assert "7" == text(7)
    assert SENTINEL == reason(text(True))
    assert SENTINEL == reason(text({"name": "x"}))


def test_item_takes_no_step_for_granted() -> None:
    """Each step may meet another shape than the version before had."""
    answer = {"a": [{"b": 1}], "n": "N/A", "s": "text", 3: "three"}

    assert 1 == item(answer, "a", 0, "b")
    assert "three" == item(answer, 3)
    assert answer == item(answer)
    assert NOT_SUPPORTED == reason(item(answer, "missing"))
    assert NOT_SUPPORTED == reason(item(answer, "a", 1))
    assert NOT_SUPPORTED == reason(item(answer, "a", "b"))
    assert NOT_SUPPORTED == reason(item(answer, "s", "b"))
    assert NOT_SUPPORTED == reason(item(None, "b"))
    assert SENTINEL == reason(item(answer, "n", "b", "c"))


@PATIENT
@given(anything, st.lists(st.text() | st.integers(0, 5), max_size=4))
def test_item_raises_nothing(raw: object, path: list[str | int]) -> None:
    """However hostile the shape, there is an answer."""
    found = item(raw, *path)

    assert path or found is raw


def test_first() -> None:
    """The first value wins; without one, a fault is a better reason than a lack."""
    lack, fault = Absent(NOT_SUPPORTED), Absent(ERROR)

    assert 0 == first(lack, 0, 1)
    assert fault == first(lack, fault, lack)
    assert fault == first(fault, lack)
    assert lack == first(Absent(SENTINEL), lack)
    assert NOT_SUPPORTED == reason(first())


def test_mean_leaves_out_what_the_device_lacks() -> None:
    """Lists hold a mark for each engine that is not there; a later candidate is for old tables."""
    assert pytest.approx(0.3) == mean([20, 0xFFFF, 40, "N/A"], convert=percent)
    assert pytest.approx(0.5) == mean(Absent(NOT_SUPPORTED), [0xFFFF], 50, convert=percent)
    assert SENTINEL == reason(mean([0xFFFF, 0xFFFF], convert=percent))
    assert IMPLAUSIBLE == reason(mean([400], convert=percent))
    assert NOT_SUPPORTED == reason(mean([], convert=percent))
    assert NOT_SUPPORTED == reason(mean(convert=percent))


@PATIENT
@given(st.lists(st.integers(0, 100) | st.sampled_from([0xFFFF, 400, "N/A", None]), min_size=1))
def test_mean_lies_between_its_entries(raws: list[object]) -> None:
    """It is never below the smallest nor above the largest that counts."""
    value = mean(raws, convert=percent)
    counted = [raw / 100 for raw in raws if isinstance(raw, int) and raw <= 100]

    if isinstance(value, (int, float)):
        assert min(counted) - 1e-9 <= value <= max(counted) + 1e-9
    else:
        assert [] == counted
