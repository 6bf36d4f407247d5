"""Every metric family of the page, from a snapshot; the one list of what is served.

The metrics of the telemetry domains are declared with their collectors, those about the node and
the exporter itself in `NODE_METRICS`. `docs/metrics.md` is made from both.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client.metrics_core import Metric as Family

from exporter import __version__
from exporter.analysis.picture import NODE_TEXTS
from exporter.collectors.base import Collector, Metric
from exporter.snapshot import Device, Snapshot
from exporter.values import Scalar

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon's own state beside the snapshot.

    Attributes:
        reload_successful: the last reading of the configuration file went well.
        reload_timestamp: Unix time of the last one that did, in seconds.
        rejected_requests: turned away by --web.max-requests.
    """

    reload_successful: bool
    reload_timestamp: float
    rejected_requests: int = 0


@dataclass(frozen=True, slots=True)
class NodeMetric:
    """A family about the node or the exporter.

    Attributes:
        take: label values and sample, for each series.
    """

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    take: Callable[[Snapshot, Status], Iterable[tuple[Labels, float]]]
    labels: Labels = ()


def _one(value: float) -> list[tuple[Labels, float]]:
    return [((), value)]


def _whole(snapshot: Snapshot) -> list[Device]:
    """One entry per device, partitions left out."""
    return list({device.key.address: device for device in snapshot.devices}.values())


def _device_labels(device: Device) -> Labels:
    return str(device.gpu), device.key.address


_DEVICE = ("gpu", "pci_address")

NODE_METRICS: tuple[NodeMetric, ...] = (
    NodeMetric(
        "amdgpu_up",
        "gauge",
        "1 if the device answered the last poll, else 0; kept for every device seen in this boot.",
        lambda s, _: [(_device_labels(d), float(d.up)) for d in _whole(s)],
        _DEVICE,
    ),
    NodeMetric(
        "amdgpu_suspended",
        "gauge",
        "1 while the device sleeps and is not read, since reading would wake it "
        "(power/runtime_status).",
        lambda s, _: [(_device_labels(d), float(d.suspended)) for d in _whole(s)],
        _DEVICE,
    ),
    NodeMetric(
        "amdgpu_devices",
        "gauge",
        "GPUs that a view of the node counts; a view that was not read is absent.",
        lambda s, _: [((view,), count) for view, count in s.views.items()],
        ("view",),
    ),
    NodeMetric(
        "amdgpu_node_info",
        "gauge",
        "Software of the node; a label that is not known is empty.",
        lambda s, _: [(tuple(s.node.get(name, "") for name in NODE_TEXTS), 1)],
        NODE_TEXTS,
    ),
    NodeMetric(
        "amdgpu_exporter_build_info",
        "gauge",
        "Version of the exporter and of Python.",
        lambda s, _: [((__version__, platform.python_version()), 1)],
        ("version", "python_version"),
    ),
    NodeMetric(
        "amdgpu_exporter_simulated",
        "gauge",
        "1 if every value on this page is made up by the simulated node.",
        lambda s, _: _one(s.simulated),
    ),
    NodeMetric(
        "amdgpu_exporter_collector_success",
        "gauge",
        "1 if every reader of the collector ran in the last poll and every device answered; 0 also "
        "where it has no value, and a source is down that might give one.",
        lambda s, _: [((name,), float(c.success)) for name, c in s.collectors.items()],
        ("collector",),
    ),
    NodeMetric(
        "amdgpu_exporter_collector_duration_seconds",
        "gauge",
        "Time that the collector's readers took in the last poll, all devices together; absent "
        "where none ran.",
        lambda s, _: [
            ((name,), c.seconds) for name, c in s.collectors.items() if c.seconds is not None
        ],
        ("collector",),
    ),
    NodeMetric(
        "amdgpu_exporter_source_up",
        "gauge",
        "1 if the source answered the last poll; absent while it rests, since the others give all "
        "that it could.",
        lambda s, _: [((r.name,), float(r.up)) for r in s.sources if not r.paused],
        ("source",),
    ),
    NodeMetric(
        "amdgpu_exporter_source_restarts_total",
        "counter",
        "Times that the source's worker was replaced.",
        lambda s, _: [
            ((r.name, reason), count) for r in s.sources for reason, count in r.restarts.items()
        ],
        ("source", "reason"),
    ),
    NodeMetric(
        "amdgpu_exporter_source_abandoned_workers",
        "gauge",
        "Worker processes that hang in the kernel and can't be killed (state D).",
        lambda s, _: [((r.name,), r.abandoned) for r in s.sources],
        ("source",),
    ),
    NodeMetric(
        "amdgpu_exporter_worker_cpu_seconds_total",
        "counter",
        "CPU time of the source's workers.",
        lambda s, _: [((r.name,), r.usage.cpu_seconds) for r in s.sources if r.usage],
        ("source",),
    ),
    NodeMetric(
        "amdgpu_exporter_worker_resident_bytes",
        "gauge",
        "Resident memory of the source's worker.",
        lambda s, _: [((r.name,), r.usage.resident_bytes) for r in s.sources if r.usage],
        ("source",),
    ),
    NodeMetric(
        "amdgpu_exporter_worker_open_fds",
        "gauge",
        "Open file descriptors of the source's worker.",
        lambda s, _: [((r.name,), r.usage.open_files) for r in s.sources if r.usage],
        ("source",),
    ),
    NodeMetric(
        "amdgpu_exporter_last_poll_timestamp_seconds",
        "gauge",
        "When the poll that this page shows ended.",
        lambda s, _: _one(s.timestamp),
    ),
    NodeMetric(
        "amdgpu_exporter_poll_interval_seconds",
        "gauge",
        "Time between two polls, as configured.",
        lambda s, _: _one(s.interval),
    ),
    NodeMetric(
        "amdgpu_exporter_rejected_values_total",
        "counter",
        "Values that a source did not give, or that could not be true.",
        lambda s, _: [(pair, count) for pair, count in s.rejected.items()],
        ("collector", "reason"),
    ),
    NodeMetric(
        "amdgpu_exporter_reset_values_total",
        "counter",
        "Hardware counters that went backwards from one poll to the next.",
        lambda s, _: [((name,), count) for name, count in s.resets.items()],
        ("collector",),
    ),
    NodeMetric(
        "amdgpu_exporter_rejected_requests_total",
        "counter",
        "Requests turned away because of --web.max-requests.",
        lambda _, status: _one(status.rejected_requests),
    ),
    NodeMetric(
        "amdgpu_exporter_config_last_reload_successful",
        "gauge",
        "1 if the configuration file was last read without an error.",
        lambda _, status: _one(status.reload_successful),
    ),
    NodeMetric(
        "amdgpu_exporter_config_last_reload_success_timestamp_seconds",
        "gauge",
        "When the configuration file was last read without an error.",
        lambda _, status: _one(status.reload_timestamp),
    ),
)


def _family(name: str, kind: str, text: str) -> Family:
    return Family(name.removesuffix("_total"), text, kind)


def _node_family(metric: NodeMetric, snapshot: Snapshot, status: Status) -> Family:
    family = _family(metric.name, metric.kind, metric.help)
    for labels, value in metric.take(snapshot, status):
        family.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
    return family


def _add(family: Family, metric: Metric[Any], base: Mapping[str, str], reading: Any) -> None:
    taken = metric.take(reading)
    if taken is None:
        return
    if metric.info:
        labels = {str(name): str(value) for name, value in _mapping(taken).items()}
        family.add_sample(metric.name, {**base, **labels}, 1)
    elif isinstance(taken, Mapping):
        for key, value in _mapping(taken).items():
            names = (key,) if isinstance(key, str) else key
            labels = dict(zip(metric.labels, names, strict=True))
            family.add_sample(metric.name, {**base, **labels}, float(value))
    else:
        family.add_sample(metric.name, dict(base), float(taken))


def _mapping(taken: object) -> Mapping[str | tuple[str, ...], Scalar]:
    return taken if isinstance(taken, Mapping) else {}


def _collector_families(collector: Collector[Any], devices: Sequence[Device]) -> Iterator[Family]:
    readings = [
        (device, device.readings[collector.name])
        for device in devices
        if collector.name in device.readings
    ]
    labels = [
        {
            "gpu": str(device.gpu),
            "pci_address": device.key.address,
            **({} if device.key.partition is None else {"partition": device.key.partition}),
        }
        for device, _ in readings
    ]
    for metric in collector.metrics:
        family = _family(metric.name, metric.kind, metric.help)
        for base, (_, reading) in zip(labels, readings, strict=True):
            _add(family, metric, base, reading)
        yield family
    for node_metric in collector.node_metrics:
        family = _family(node_metric.name, "gauge", node_metric.help)
        taken = node_metric.take([reading for _, reading in readings])
        for key, value in sorted(_mapping(taken).items()):
            names = (key,) if isinstance(key, str) else key
            label = dict(zip(node_metric.labels, names, strict=True))
            family.add_sample(node_metric.name, label, float(value))
        yield family


def families(
    snapshot: Snapshot, status: Status, collectors: Sequence[Collector[Any]]
) -> Iterator[Family]:
    """The families of a page that have samples: the node's, then those of `collectors`."""
    for metric in NODE_METRICS:
        yield _node_family(metric, snapshot, status)
    for collector in collectors:
        yield from _collector_families(collector, snapshot.devices)
