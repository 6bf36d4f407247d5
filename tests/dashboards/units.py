"""Values as Grafana writes them, for the units that the dashboards use."""

from __future__ import annotations

import math
from collections.abc import Callable

_SI = ("", "k", "M", "G", "T", "P")
_IEC = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = ((86_400.0, "days"), (3600.0, "hours"), (60.0, "mins"), (1.0, "s"), (1e-3, "ms"))


def _number(value: float, decimals: int | None) -> str:
    if decimals is None:
        size = 0 if value == 0 else math.floor(math.log10(abs(value)))
        decimals = max(0, min(2 - size, 3))
        return f"{value:.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{value:.0f}"
    return f"{value:.{decimals}f}"


def _scaled(value: float, decimals: int | None, base: float, names: tuple[str, ...]) -> str:
    size = 0
    while abs(value) >= base and size < len(names) - 1:
        value, size = value / base, size + 1
    return f"{_number(value, decimals)} {names[size]}".rstrip()


def _seconds(value: float, decimals: int | None) -> str:
    for size, name in _TIMES:
        if abs(value) >= size:
            return f"{_number(value / size, decimals)} {name}"
    return f"{_number(value, decimals)} s"


def _si(suffix: str) -> Callable[[float, int | None], str]:
    return lambda value, decimals: _scaled(
        value, decimals, 1000, tuple(f"{prefix}{suffix}" for prefix in _SI)
    )


UNITS: dict[str, Callable[[float, int | None], str]] = {
    "none": _number,
    "celsius": lambda value, decimals: f"{_number(value, decimals)} °C",
    "watt": _si("W"),
    "hertz": _si("Hz"),
    "joule": _si("J"),
    "Bps": _si("B/s"),
    "bytes": lambda value, decimals: _scaled(value, decimals, 1024, _IEC),
    "percentunit": lambda value, decimals: f"{_number(value * 100, decimals)} %",
    "s": _seconds,
    "h": lambda value, decimals: f"{_number(value, decimals)} hours",
    "kwatth": lambda value, decimals: f"{_number(value, decimals)} kWh",
}
"""By Grafana's name of the unit."""


def written(value: float, unit: str, decimals: int | None = None) -> str:
    """A value with its unit."""
    return "NaN" if math.isnan(value) else UNITS[unit](value, decimals)
