"""The guard: raw vendor answers in, base units or a reasoned absence out.

The only place that knows the vendors' marks for "no value" and what is plausible.

Sources of the facts: AMD SMI and ROCm SMI fill what they don't know with all ones of the
field's width, from AMD SMI 6.1 on mostly with the string 'N/A'; list elements still leak raw
all-ones (amdsmi_interface.py, `_validate_if_max_uint`). The plausible ranges are assumptions
about any GPU, not limits of one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache

from exporter.values import IMPLAUSIBLE, NOT_SUPPORTED, SENTINEL, Absent, Value

_ONES = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, -1})
_PROCESS_FOLDER = re.compile(r"/+(?=proc/)")
_NO_VALUE_TEXTS = frozenset({"", "n/a", "none", "unknown"})
_NOT_APPLICABLE = Absent(SENTINEL, repr("N/A"))

MEBIBYTE = 1 << 20
MEGAHERTZ = 1_000_000


@lru_cache(maxsize=None, typed=True)
def _marked(raw: float) -> Absent:
    """The absence that a mark stands for; there are few marks, and many values that are one."""
    return Absent(SENTINEL, f"{raw:#x}" if isinstance(raw, int) else str(raw))


def number(
    raw: object,
    *,
    scale: float = 1,
    low: float = 0,
    high: float = math.inf,
    ones: frozenset[int] = _ONES,
) -> int | float | Absent:
    """One number, in base units.

    Args:
        raw: what the source answered: a number, text, or an `Absent` that is passed on.
        scale: what one vendor unit is in base units.
        low, high: the plausible range, in base units, both ends included.
        ones: raw values that mean "no value".

    Returns:
        The scaled number, or `Absent` with the reason `sentinel` or `implausible`.
    """
    if isinstance(raw, Absent):
        return raw
    if isinstance(raw, str):
        if raw == "N/A":  # by far the most frequent text: half of AMD SMI's gpu_metrics
            return _NOT_APPLICABLE
        text = raw.strip()
        if text.lower() in _NO_VALUE_TEXTS:
            return Absent(SENTINEL, repr(raw))
        try:
            raw = float(text) if not text.lstrip("+-").isdigit() else int(text)
        except ValueError:
            return Absent(IMPLAUSIBLE, f"not a number: {text[:40]!r}")
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return Absent(IMPLAUSIBLE, f"not a number: {str(raw)[:40]!r}")
    if raw in ones:
        return _marked(raw)
    if raw.bit_length() > 64 if isinstance(raw, int) else not math.isfinite(raw):
        return Absent(IMPLAUSIBLE, "no number of 64 bits")
    value = raw * scale
    if not low <= value <= high:
        return Absent(IMPLAUSIBLE, f"{raw}")
    return value


def celsius(raw: object, *, scale: float = 1) -> int | float | Absent:
    """A temperature, -40 to 150 degrees."""
    return number(raw, scale=scale, low=-40, high=150)


def limit_celsius(raw: object, *, scale: float = 1) -> int | float | Absent:
    """A temperature limit. Zero is how firmware without limits says so (SMU before 85.69)."""
    value = celsius(raw, scale=scale)
    return Absent(SENTINEL, "0: the firmware gives no limit") if value == 0 else value


def percent(raw: object) -> int | float | Absent:
    """A share, given in percent and returned as a ratio."""
    return number(raw, scale=0.01, high=1)


def watts(raw: object, *, scale: float = 1) -> int | float | Absent:
    """A power, at most 5 kW."""
    return number(raw, scale=scale, high=5000)


def megahertz(raw: object) -> int | float | Absent:
    """A frequency given in MHz, returned in hertz, at most 20 GHz."""
    return number(raw, scale=MEGAHERTZ, high=20e9)


@cache
def _ones_of_width(bits: int) -> frozenset[int]:
    return frozenset({(1 << width) - 1 for width in (16, 32, 64) if width >= bits} | {-1})


def counter(raw: object, *, bits: int, scale: float = 1) -> int | float | Absent:
    """An accumulated count of a known width; only all ones of that width or wider is a mark.

    A 64 bit count may well stand at 65535, which elsewhere would mean "no value".
    """
    return number(raw, scale=scale, ones=_ones_of_width(bits), high=float(1 << 64) * scale)


def text(raw: object) -> str | Absent:
    """A name, version or serial; at most 128 characters, printable only."""
    if isinstance(raw, Absent):
        return raw
    if not isinstance(raw, (str, int)) or isinstance(raw, bool):
        return Absent(SENTINEL, repr(raw)[:40])
    cleaned = "".join(c for c in str(raw) if c.isprintable()).strip()[:128].rstrip()
    if cleaned.lower() in _NO_VALUE_TEXTS or raw in _ONES:
        return Absent(SENTINEL, repr(raw)[:40])
    return cleaned


def label(raw: object) -> str:
    """A text from outside the vendor's code as a label, empty where there is none.

    What looks like the folder of a process is made harmless: it would name another one tomorrow.
    """
    cleaned = text(raw)
    return "" if isinstance(cleaned, Absent) else _PROCESS_FOLDER.sub("", cleaned)


def item(raw: object, *path: str | int) -> object:
    """What lies at `path` inside nested dicts and lists, or `Absent` where the shape differs.

    AMD SMI's dicts change shape from version to version and even from partition to partition
    ('N/A' where another version has a dict), so no step of the path is taken for granted.
    """
    for step in path:
        if isinstance(raw, Absent):
            return raw
        if isinstance(raw, (dict, Mapping)):  # a plain dict is told faster
            if step not in raw:
                return Absent(NOT_SUPPORTED, f"no {step!r} in the answer")
            raw = raw[step]
        elif isinstance(raw, (list, tuple)) and isinstance(step, int) and step < len(raw):
            raw = raw[step]
        elif isinstance(raw, str) and raw.strip().lower() in _NO_VALUE_TEXTS:
            return Absent(SENTINEL, repr(raw))
        else:
            return Absent(NOT_SUPPORTED, f"no {step!r} in the answer")
    return raw


def first(*candidates: Value) -> Value:
    """The first candidate that is a value; the last absence where none is.

    For one quantity that hardware generations report under different names.
    """
    absent: Absent | None = None
    for candidate in candidates:
        if not isinstance(candidate, Absent):
            return candidate
        if absent is None or absent.reason in (SENTINEL, NOT_SUPPORTED):
            absent = candidate
    return absent if absent is not None else Absent(NOT_SUPPORTED)


def mean(*candidates: object, convert: Callable[[object], Value]) -> Value:
    """The first candidate with a value; of a list the mean over the entries that have one.

    Lists hold one entry per die or engine, and all-ones for those that this device lacks.
    """
    absent: Value = Absent(NOT_SUPPORTED)
    for candidate in candidates:
        if not isinstance(candidate, (list, tuple)):
            value = convert(candidate)
            if not isinstance(value, Absent):
                return value
            absent = value
            continue
        checked = [convert(entry) for entry in candidate]
        numbers = [entry for entry in checked if isinstance(entry, (int, float))]
        if numbers:
            return sum(numbers) / len(numbers)
        if checked:
            absent = checked[0]
    return absent
