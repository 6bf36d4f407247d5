"""The command `leak-check`: judge what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from exporter.leaks.detector import Detector
from exporter.leaks.model import HOUR, Sample, Thresholds, Verdict
from exporter.leaks.recorded import InputError, Query, read_csv, read_prometheus

CLEAN, LEAK, UNJUDGED = 0, 1, 2
"""The exit statuses: no leak, a leak, and input that can't be judged."""
_COLUMNS = ("gpu", "kind", "since", "MiB per hour", "pid", "evidence")


def run(
    source: Path | Query,
    out: TextIO,
    err: TextIO,
    format: str = "table",
    thresholds: Thresholds | None = None,
) -> int:
    """Judge a recording and print the verdicts; the exit status of the command.

    Args:
        source: the CSV file, or what to ask of which Prometheus.
        out: where the verdicts go.
        err: where the one line goes that says why there is none.
        format: `table` or `json`.
        thresholds: when to call it a leak.
    """
    try:
        recording = read_prometheus(source) if isinstance(source, Query) else read_csv(source)
    except InputError as error:
        err.write(f"amdgpu-exporter: {error}\n")
        return UNJUDGED
    verdicts = {name: judge(samples, thresholds) for name, samples in recording.items()}
    ordered = dict(sorted(verdicts.items(), key=lambda item: _natural(item[0])))
    out.write(_json(ordered) if format == "json" else _table(ordered))
    return LEAK if any(verdict.kind != "none" for verdict in ordered.values()) else CLEAN


def judge(samples: Iterable[Sample], thresholds: Thresholds | None = None) -> Verdict:
    """What is thought of a device after its last sample.

    A process that leaked until it ended still counts: afterwards is when one wants to know. What
    came back while the process lived, or has been at rest for long, does not.
    """
    detector = Detector(thresholds)
    ended, before, verdict = None, Verdict(), Verdict()
    for sample in samples:
        detector.observe(sample)
        verdict = detector.verdict()
        if before.kind == "process" and verdict.kind == "none" and before.pid is not None:
            present = {use.pid for use in sample.processes or () if use.vram_bytes}
            if before.pid not in present:
                ended = before
        before = verdict
    if verdict.kind == "none" and ended is not None:
        return replace(ended, evidence=f"{ended.evidence}, until it ended")
    return verdict


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = name.split("/")
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)


def _json(verdicts: dict[str, Verdict]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "gpu": int(name) if name.isdecimal() and str(int(name)) == name else name,
            "kind": verdict.kind,
            "since_seconds": verdict.since_seconds,
            "bytes_per_second": verdict.bytes_per_second,
            "pid": verdict.pid,
            "evidence": verdict.evidence,
        }
        for name, verdict in verdicts.items()
    ]
    return json.dumps(rows, indent=2) + "\n"


def _table(verdicts: dict[str, Verdict]) -> str:
    rows = [_COLUMNS, *(_cells(name, verdict) for name, verdict in verdicts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        + "\n"
        for row in rows
    )


def _cells(name: str, verdict: Verdict) -> tuple[str, ...]:
    rate = verdict.bytes_per_second
    return (
        name,
        verdict.kind,
        "-" if verdict.since_seconds is None else _moment(verdict.since_seconds),
        "-" if rate is None else f"{rate * HOUR / (1 << 20):.0f}",
        "-" if verdict.pid is None else str(verdict.pid),
        verdict.evidence,
    )


def _moment(seconds: float) -> str:
    """As a date where it is Unix time, else as it is."""
    if not 1e9 <= seconds < 1e11:
        return f"{seconds:g}"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
