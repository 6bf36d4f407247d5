"""Makes docs/metrics.md and docs/configuration.md from the registries: `make docs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter.collectors import COLLECTORS
from exporter.collectors.base import Collector
from exporter.config import reference
from exporter.exposition.families import NODE_METRICS

DOCS = Path(__file__).resolve().parents[2] / "docs"
_HEAD = "| metric | type | further labels | meaning |\n|---|---|---|---|"


def _row(name: str, kind: str, labels: tuple[str, ...], meaning: str) -> str:
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind} | {shown} | {meaning} |"


def _collector(collector: Collector[Any]) -> Iterator[str]:
    state = "on" if collector.default else "off"
    sources = ", ".join(dict.fromkeys(f"`{reader.source}`" for reader in collector.readers))
    origin = f"Sources in order: {sources}." if sources else "It reads nothing of its own."
    yield f"\n## {collector.name}\n"
    yield f"{collector.summary[0].upper()}{collector.summary[1:]}."
    yield f"`--collector.{collector.name}` is {state} by default. {origin}\n"
    yield _HEAD
    for metric in collector.metrics:
        labels = metric.labels
        if metric.info:
            labels = tuple(_info_labels(metric.take(collector.reading())))
        yield _row(metric.name, metric.kind, labels, metric.help)
    for node_metric in collector.node_metrics:
        meaning = f"{node_metric.help} About the node: no device labels."
        yield _row(node_metric.name, "gauge", node_metric.labels, meaning)


def _info_labels(taken: object) -> tuple[str, ...]:
    return tuple(str(name) for name in taken) if isinstance(taken, Mapping) else ()


def metrics() -> str:
    """The text of docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Made from the registry by `make docs`; do not edit.",
        "",
        "Every series of a device has the labels `gpu` (its number, kept for this boot) and",
        "`pci_address`. On a partitioned device, what belongs to a partition has the label",
        "`partition` as well; facts of the socket appear once, without it. A value that was not",
        "read is absent: never 0, never the last one. Units are base units.",
        "",
        "## Node and exporter",
        "",
        _HEAD,
        *(_row(m.name, m.kind, m.labels, m.help) for m in NODE_METRICS),
    ]
    for collector in COLLECTORS:
        lines += _collector(collector)
    lines += [
        "",
        "## Process",
        "",
        "The daemon's own `process_*` families are those of the Prometheus client library.",
    ]
    return "\n".join(lines) + "\n"


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "configuration.md": lambda: reference(COLLECTORS),
}

if __name__ == "__main__":
    for name, text in DOCUMENTS.items():
        (DOCS / name).write_text(text())
