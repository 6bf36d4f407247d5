"""Durations as people write them: `5s`, `500ms`, `1h30m`, `2d`."""

from __future__ import annotations

import re

_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,12}}){unit})?" for unit in _MILLISECONDS))

LONGEST = 3650 * 86_400.0
"""Ten years, in seconds. Anything longer is a slip, and more than a clock can wait for."""


def parse_duration(text: str) -> float:
    """The seconds that `text` stands for: whole numbers with units, the largest unit first.

    >>> parse_duration("1h30m")
    5400.0

    Raises:
        ValueError: a unit is missing, unknown, repeated or out of order, or it is too long.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        hint = "; a unit is missing" if re.fullmatch(r"[0-9.]+", text) else ""
        raise ValueError(f"{text!r:.40} is no duration such as 500ms, 5s, 1h30m or 2d{hint}")
    seconds = (
        sum(
            int(count) * scale
            for count, scale in zip(match.groups(), _MILLISECONDS.values(), strict=True)
            if count is not None
        )
        / 1000
    )
    if seconds > LONGEST:
        raise ValueError(f"{text!r:.40} is longer than {format_duration(LONGEST)}")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text for a duration, to the millisecond; `parse_duration` reads it back.

    >>> format_duration(5400)
    '1h30m'

    Raises:
        ValueError: it is negative or not finite.
    """
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration is not negative and ends: {seconds}")
    left = round(seconds * 1000)
    parts = []
    for unit, scale in _MILLISECONDS.items():
        count, left = divmod(left, scale)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
