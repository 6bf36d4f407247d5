"""Makes docs/metrics.md and docs/configuration.md from the registries: `make docs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from exporter.collectors import COLLECTORS
from exporter.collectors.base import Collector
from exporter.config import reference
from exporter.exposition.families import NODE_METRICS
from exporter.leaks import Thresholds

DOCS = Path(__file__).resolve().parents[2] / "docs"
_HEAD = "| metric | type | further labels | meaning |\n|---|---|---|---|"


_LEAKS = """# VRAM leaks

Made by `make docs`; do not edit.

The daemon judges two kinds of leak, from the memory, its owners and the activity:

- `process`: the floor of one process's memory climbs steadily, and no load explains it;
- `residue`: memory in use that no owner accounts for. It grows over jobs, stays after the last one
  has exited, or lies on an idle GPU. What a zombie holds belongs to nobody.

`amdgpu_vram_leak_suspected` is absent until there is enough to judge (about two hours), then 0
or 1. The landing page and the snapshot say since when, how fast, which process and how sure; the
log has a line when a suspicion starts and one when it ends. With a state directory the history
survives a restart of the daemon; it starts afresh after a reboot, when the driver was loaded
anew and when partitions change.

What it can't tell apart while it lasts: a slow ramp of some hours, garbage that is collected
every few hours, and a daily rhythm whose activity is not reported. `make bench-leaks` prints
what it reaches on labelled traces, beside `predict_linear`, `deriv` and a least-squares fit.

## After the fact

`amdgpu-exporter leak-check FILE` judges a CSV file with the header
`time_seconds,gpu,vram_total_bytes,vram_used_bytes,gfx_activity_ratio,processes`, one row per
sample and GPU; `processes` is `pid:start_time:vram_bytes`, separated by `;`. `amdgpu-exporter
leak-check --prometheus URL --since 24h` asks a Prometheus instead. Exit status: 0 no leak, 1 a
leak, 2 input that can't be judged.

## Thresholds

They stand in the configuration file under `leaks`, for example `leaks: {{growth_ratio: 0.01}}`.
Every default holds for devices of 64 to 288 GB; shares are of the device's VRAM.

| threshold | default | range | why |
|---|---|---|---|
{rows}
"""


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
        "read is absent: never 0, never the last one. What changes seldom is read on a slower",
        "clock, and stands until the next look: error counts, bad pages, limits of temperature and",
        "power, highest clocks and fans every 30 s; names, firmware and sizes of memory once per",
        "device generation. Units are base units.",
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


def leaks() -> str:
    """The text of docs/leaks.md."""
    rows = "\n".join(
        f"| `{each.name}` | {each.default:g} "
        f"| {each.metadata['low']:g} to {each.metadata['high']:g} | {each.metadata['why']} |"
        for each in fields(Thresholds)
    )
    return _LEAKS.format(rows=rows)


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "leaks.md": leaks,
    "configuration.md": lambda: reference(COLLECTORS),
}

if __name__ == "__main__":
    for name, text in DOCUMENTS.items():
        (DOCS / name).write_text(text())
