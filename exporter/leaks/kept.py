"""Numbers in kept state, which may be damaged."""

from __future__ import annotations

from math import isfinite


def whole(value: object) -> int:
    """A whole number below 2**53 either way.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or abs(value) >= 1 << 53:
        raise ValueError(f"expected a whole number, got {value!r:.40}")
    return value


def number(value: object) -> float:
    """A finite number below 2**53 either way.

    Raises:
        ValueError: it is none.
    """
    if type(value) is int:
        return float(whole(value))
    if type(value) is not float or not isfinite(value) or abs(value) >= 1 << 53:
        raise ValueError(f"expected a number, got {value!r:.40}")
    return value
