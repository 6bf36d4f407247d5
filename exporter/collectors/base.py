"""What a collector is made of. Plain data: readers, metrics, and rules for derived fields.

A collector file imports nothing but this module, `exporter.values` and `exporter.sources.guard`,
since the workers load it too and must stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from exporter.values import Fields, Scalar

R = TypeVar("R")

SourceName = Literal["amdsmi", "rocm_smi", "sysfs", "pod_resources"]

Samples = (
    Scalar
    | None
    | Mapping[str, Scalar]
    | Mapping[tuple[str, str], Scalar]
    | Mapping[tuple[str, ...], Scalar]
)
"""One sample, none, or one per label value (a tuple where a metric has several labels)."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How one source gives a domain's fields.

    Attributes:
        source: whose session object `read` takes.
        read: called with the source's view of one device, at every poll that needs it.
        per_partition: a partitioned device is read once per partition instead of once.
        every: seconds for which what it read is repeated; for readers that ask for slow facts only.
    """

    source: SourceName
    read: Callable[[Any], Fields]
    per_partition: bool = False
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class Metric(Generic[R]):
    """One metric family, and how its samples are taken from a reading.

    Attributes:
        name: as in the metric contract, `_total` included for counters.
        kind: gauge or counter.
        help: what it means, and the source field it comes from.
        take: the samples of one reading; None where it was not reported.
        labels: the names for the keys of a mapping that `take` gives. An info metric
            (`info=True`) names no labels: `take` gives a mapping from label name to value.
    """

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    take: Callable[[R], Samples]
    labels: tuple[str, ...] = ()
    info: bool = False


@dataclass(frozen=True, slots=True)
class NodeMetric(Generic[R]):
    """A gauge about the whole node, without device labels, taken from all readings together."""

    name: str
    help: str
    take: Callable[[Sequence[R]], Samples]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """`into` is the change of the counter field `of` per second since the poll before.

    Attributes:
        clock: a field with the hardware's own clock in seconds, used where it is reported.
    """

    into: str
    of: str
    clock: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """`into` is how much of the change of `over` the change of `of` makes up (0 to 1)."""

    into: str
    of: str
    over: str


@dataclass(frozen=True, slots=True)
class Integral:
    """`into` adds up the gauge `of` over time, from the start of the daemon.

    The value of a poll counts for the time since the poll before it; a gap counts nothing.
    """

    into: str
    of: str


@dataclass(frozen=True, slots=True)
class Setting:
    """`into` is the configured mapping `name`, for the keys in `where` that `unless` lacks."""

    into: str
    name: str
    where: str
    unless: str


Derivation = Rate | Share | Integral | Setting


@dataclass(frozen=True, slots=True)
class Collector(Generic[R]):
    """Everything about one telemetry domain.

    Attributes:
        name: of the flags `--collector.NAME` and `--no-collector.NAME`, and of `collect[]`.
        summary: one line for `--help` and the documentation.
        reading: the frozen dataclass that holds a device's fields, each None or empty
            where not reported.
        readers: in order of preference; field by field the first that reports wins.
        metrics: what is served.
        derived: fields that need the poll before; computed by `exporter.analysis`.
        node_metrics: what is served once for the node.
        counters: fields that accumulate; they keep to one source, since two sources may count
            from different moments.
        vital: fields that a device which answers gives anew at every poll. Others may be
            remembered, or kept by the driver of a device that is long gone.
        why_absent: field to the sentence that the support report shows where no source gives it,
            for what lies in a generation of hardware and no error message tells.
        keys: what the keys of its mappings are, where they come and go; the support report then
            shows a line for all of them together.
        default: on without being asked for.
    """

    name: str
    summary: str
    reading: type[R]
    readers: tuple[Reader, ...]
    metrics: tuple[Metric[R], ...]
    derived: tuple[Derivation, ...] = ()
    node_metrics: tuple[NodeMetric[R], ...] = ()
    counters: tuple[str, ...] = ()
    vital: tuple[str, ...] = ()
    why_absent: Mapping[str, str] = field(default_factory=dict)
    keys: str = ""
    default: bool = True
