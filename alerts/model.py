"""What an alert and a recording rule are, and how thresholds get into their expressions.

Expressions and texts hold placeholders: `@hold` is the setting `hold` of the rule's own section of
thresholds.yaml, else of its section `common`. Of a duration, `@window_seconds` is the same in
seconds, as the counters of the hardware count them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from string import Template
from typing import Literal

import yaml

Severity = Literal["critical", "warning", "info"]
Scope = Literal["gpu", "node", "fleet"]

NODE = "cluster, instance"
"""What tells nodes apart; without a label `cluster` it is the instance alone."""
GPU = f"{NODE}, gpu, pci_address"
PARTITION = f"{GPU}, partition"
WHERE = "GPU {{ $labels.gpu }} ({{ $labels.pci_address }}) of {{ $labels.instance }}"
"""How descriptions name a device."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """What a person who is woken needs to know, in Markdown.

    Attributes:
        diagnosis: with commands to copy.
    """

    meaning: str
    impact: str
    diagnosis: str
    mitigation: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        severity: critical pages, warning wants a person in working hours, info is only shown.
        scope: whom it is about; a GPU's and a node's alerts are silent during maintenance.
        expr: held, as `held` says, so that it does not end when the data vanish. It must leave no
            label `severity`, which the alert's own would replace.
        summary: one line without figures.
        description: the device and the figure.
        panel: the dashboard and the title of the panel that shows it.
        runbook: the page for whoever is called.
        inhibited_by: alerts of which this one is a consequence, beside those that every alert of
            its scope has.
        keep: the setting that says how long it goes on after its condition ended: a counter's
            alert for `hold`, since a vanished counter seems to stand still; None for not at all.
    """

    name: str
    severity: Severity
    scope: Scope
    expr: str
    summary: str
    description: str
    panel: tuple[str, str]
    runbook: Runbook
    inhibited_by: tuple[str, ...] = ()
    keep: Literal["keep", "hold"] | None = "keep"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule; the name says the labels left, the metric, and what was done to it."""

    record: str
    expr: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Domain:
    """The alerts about one thing; a rule file."""

    name: str
    title: str
    alerts: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class RecordingGroup:
    """Recording rules that are evaluated together.

    Attributes:
        interval: the name of the setting that holds it; None for Prometheus's own.
    """

    name: str
    title: str
    rules: tuple[Recording, ...]
    interval: str | None = None


def held(selector: str) -> str:
    """The last value that a gauge had within the time `hold`, whether or not it still has one.

    A value that comes back takes its place at once, so an alert ends with the fault, and not with
    the data.
    """
    return f"last_over_time({selector}[@hold])"


# ------------------------------------------------------------------------------------ settings

_UNITS: Mapping[str, Fraction] = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
    "w": Fraction(604800),
}
_DURATION = re.compile(r"(\d+)(ms|[smhdw])")

Setting = int | float | str


def seconds(duration: str) -> Fraction:
    """The seconds of a duration such as `15m`."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is no duration: write a number and one of {[*_UNITS]}")
    return int(found[1]) * _UNITS[found[2]]


def is_duration(value: Setting) -> bool:
    """Whether a setting is a duration."""
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def divided(duration: str, divisor: int) -> str:
    """The duration divided, as Prometheus writes it; never less than a millisecond."""
    if divisor == 1:
        return duration
    return f"{max(1, round(seconds(duration) * 1000 / divisor))}ms"


class _Placeholders(Template):
    delimiter = "@"
    idpattern = "[a-z][a-z0-9_]*"


@dataclass(frozen=True, slots=True)
class Settings:
    """What stands in thresholds.yaml.

    Attributes:
        sections: `common`, and one per alert that has its own.
        divisor: every duration is divided by it, for tests in which time runs faster.
    """

    sections: Mapping[str, Mapping[str, Setting]]
    divisor: int = 1

    @classmethod
    def read(cls, text: str, divisor: int = 1) -> Settings:
        """The settings from the text of a file."""
        loaded = yaml.safe_load(text)
        if not isinstance(loaded, dict) or not all(isinstance(s, dict) for s in loaded.values()):
            raise ValueError("thresholds: a mapping of sections, each a mapping of settings")
        return cls(loaded, divisor)

    def of(self, section: str) -> Mapping[str, Setting]:
        """The settings that a rule sees: its own, and the common ones."""
        return {**self.sections["common"], **self.sections.get(section, {})}

    def duration(self, section: str, name: str) -> str | None:
        """A duration that a rule waits, divided; None where it does not wait."""
        value = self.of(section).get(name)
        return None if value is None else divided(str(value), self.divisor)

    def fill(self, section: str, text: str) -> str:
        """The text with its placeholders replaced."""
        values: dict[str, object] = {}
        for name, value in self.of(section).items():
            if is_duration(value):
                values[name] = divided(str(value), self.divisor)
                values[f"{name}_seconds"] = _plain(seconds(str(value)))
            else:
                values[name] = value
        return _Placeholders(text).substitute(values)


def _plain(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else str(float(number))
