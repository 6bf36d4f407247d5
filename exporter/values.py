"""What a source answers: a value, or its absence with the reason.

Nothing here knows a vendor. Base units everywhere: bytes, seconds, celsius, watts, hertz,
joules, ratios from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NOT_SUPPORTED = "not_supported"
"""This hardware, driver or library version does not give the value."""
NOT_PERMITTED = "not_permitted"
"""The exporter lacks a right; the detail says which file or call."""
SENTINEL = "sentinel"
"""The source answered with its mark for "no value" (all ones, N/A, empty)."""
IMPLAUSIBLE = "implausible"
"""The value cannot be true, for example a temperature of 6000 degrees."""
STALE = "stale"
"""The source reported success, but handed out an old value."""
BUSY = "busy"
"""The device refused for the moment (EBUSY)."""
ERROR = "error"
"""The call or the read failed; the detail says how."""
SUSPENDED = "suspended"
"""The device sleeps, and reading would wake it."""
NO_ANSWER = "no_answer"
"""The device hung, or its worker died while reading it."""

REASONS = (
    NOT_SUPPORTED,
    NOT_PERMITTED,
    SENTINEL,
    IMPLAUSIBLE,
    STALE,
    BUSY,
    ERROR,
    SUSPENDED,
    NO_ANSWER,
)
FAULTS = frozenset({NOT_PERMITTED, IMPLAUSIBLE, STALE, BUSY, ERROR, NO_ANSWER})
"""Reasons that a person should hear of; the others are how the hardware is."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A value that was not reported.

    Attributes:
        reason: one of `REASONS`.
        detail: what exactly was seen, for the support report and the log.
    """

    reason: str
    detail: str = ""


Scalar = int | float | str
Value = int | float | str | Absent
FieldValue = Value | Mapping[str, Value]
"""A field holds one value, or one per key (a sensor, a link, a RAS block)."""
Fields = Mapping[str, FieldValue]
"""Field name to value: what one reader learned of one device in one poll."""

Wire = int | float | str | list[str] | dict[str, int | float | str | list[str]]


def to_wire(value: FieldValue) -> Wire:
    """Encode a field for JSON: an absence becomes the list `[reason, detail]`."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Absent):
        return [value.reason, value.detail]
    return {
        key: [item.reason, item.detail] if isinstance(item, Absent) else item
        for key, item in value.items()
    }


def from_wire(value: object) -> FieldValue:
    """Decode what `to_wire` wrote.

    Raises:
        ValueError: the shape is none that `to_wire` makes (a worker gone wild).
    """
    if isinstance(value, dict):
        return {str(key): _value_from_wire(item) for key, item in value.items()}
    return _value_from_wire(value)


def _value_from_wire(value: object) -> Value:
    if isinstance(value, bool):
        raise ValueError("a truth value is no reading")
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, list) and len(value) == 2 and value[0] in REASONS:
        return Absent(value[0], str(value[1]))
    raise ValueError(f"no reading has this shape: {value!r:.80}")
