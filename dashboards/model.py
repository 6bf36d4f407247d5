"""What a dashboard is made of, as plain data: a new panel is one entry in a dashboard's module.

Queries are PromQL with four abbreviations, so that no panel forgets a variable or a label:

    {NODE}  {NODE, view="pci"}   the selected clusters, jobs and instances
    {GPU}   {GPU, sensor="hbm"}  these, and the selected GPUs
    <node>                       cluster, job, instance: what tells nodes apart
    <gpu>                        these and gpu: what tells devices apart
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

NODE = "cluster, job, instance"
GPU = f"{NODE}, gpu"
_MATCHERS = {
    name: ", ".join(f'{label}=~"${label}"' for label in labels.split(", "))
    for name, labels in (("NODE", NODE), ("GPU", GPU))
}

OF_NODE = "{{instance}}"
OF_GPU = "{{instance}} GPU {{gpu}}"
"""Legends: of many nodes, "GPU 0" alone would be ambiguous."""

Kind = Literal["timeseries", "stat", "table", "matrix", "bargauge", "statetimeline"]
Colour = Literal["green", "yellow", "orange", "red", "blue", "text", "transparent"]
Steps = tuple[tuple[float, Colour], ...]
Names = Mapping[int, tuple[str, Colour]]
"""Texts, and their colours, for values."""
YES_OR_NO: Names = {0: ("no", "red"), 1: ("yes", "green")}


def written_out(query: str) -> str:
    """A query without abbreviations."""
    for name, matchers in _MATCHERS.items():
        query = query.replace(f"{{{name}", f"{{{matchers}")
    return " ".join(query.replace("<node>", NODE).replace("<gpu>", GPU).split())


def panel_id(title: str) -> int:
    """The number of a panel in links: it stays when panels are added or moved."""
    return zlib.crc32(title.encode()) % 1_000_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Colours by value: `base` up to the first step.

    Attributes:
        steps: from which value on, which colour; in rising order.
    """

    base: Colour = "text"
    steps: Steps = ()


PLAIN = Thresholds()
NONE_IS_GOOD = Thresholds("green", ((1, "red"),))
"""For counts of what should not happen."""

ONE_IS_GOOD = Thresholds("red", ((1, "green"),))
"""For states that should be 1."""


def above(warning: float, critical: float) -> Thresholds:
    """High values are bad."""
    return Thresholds("green", ((warning, "orange"), (critical, "red")))


def below(warning: float, critical: float) -> Thresholds:
    """Low values are bad."""
    return Thresholds("red", ((critical, "orange"), (warning, "green")))


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        text: PromQL, with the abbreviations of this module.
        legend: the names of its series; of a table, the title of its column of values.
        unit, thresholds, names: of a table's column, where they differ from the panel's.
        dashed: drawn as a line of reference, such as a limit, beside what is stacked.
    """

    text: str
    legend: str = OF_GPU
    unit: str | None = None
    thresholds: Thresholds | None = None
    names: Names = field(default_factory=dict)
    dashed: bool = False

    @property
    def expression(self) -> str:
        """The PromQL that Grafana gets."""
        return written_out(self.text)


@dataclass(frozen=True, slots=True)
class Link:
    """A way to another dashboard, or to one of its panels."""

    dashboard: str
    panel: str | None = None

    @property
    def path(self) -> str:
        """The address in Grafana, without the variables."""
        path = f"/d/{self.dashboard}"
        return path if self.panel is None else f"{path}?viewPanel={panel_id(self.panel)}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: unique in its dashboard; links and ids are made from it.
        description: what it shows, and what a reader should make of it.
        unit: of its values, as Grafana names units.
        queries: one or more.
        thresholds: colours by value.
        width, height: in Grafana's grid of 24 columns.
        low, high: ends of the scale, where they are known.
        decimals: shown; Grafana's choice by default.
        stacked: areas on top of each other, for parts of a whole.
        drill: the dashboard that a click on a series leads to, with its instance and GPU.
        see: the panel to read next.
        labels: of a table, the columns before the values; of a matrix, row and column.
        names: texts for values, such as 1 for "up".
        sort: the column by whose falling values a table is sorted; `-` before it: rising ones.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    thresholds: Thresholds = PLAIN
    width: int = 12
    height: int = 8
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    stacked: bool = False
    drill: str | None = None
    see: Link | None = None
    labels: tuple[str, ...] = ()
    names: Names = field(default_factory=dict)
    sort: str | None = None

    @property
    def id(self) -> int:
        """Its number."""
        return panel_id(self.title)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Events drawn into all panels over time."""

    name: str
    text: str
    colour: Colour = "red"

    @property
    def expression(self) -> str:
        """The PromQL that Grafana gets."""
        return written_out(self.text)


Choice = Literal["one", "many"]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard.

    Attributes:
        name: of its file; its uid is `amdgpu-NAME`, for ever.
        instances: whether it is about one node or many.
        gpus: whether one GPU can be chosen, or many, or none at all.
        price: it asks for a price of energy.
        span: the time that it shows at first.
    """

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    instances: Choice = "many"
    gpus: Choice | None = None
    price: bool = False
    span: str = "now-6h"
    annotations: tuple[Annotation, ...] = ()

    @property
    def uid(self) -> str:
        """What links lead to."""
        return f"amdgpu-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def stat(
    title: str,
    description: str,
    query: str,
    *,
    unit: str = "none",
    thresholds: Thresholds = PLAIN,
    width: int = 4,
    decimals: int | None = None,
    see: Link | None = None,
    names: Names | None = None,
) -> Panel:
    """One figure."""
    return Panel(
        title,
        description,
        unit,
        (Query(query, title),),
        "stat",
        thresholds,
        width,
        height=4,
        decimals=decimals,
        see=see,
        names=names or {},
    )
