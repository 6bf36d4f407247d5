"""Where recorded samples come from: a CSV file, or a Prometheus.

The file has one row per sample and GPU, in any order, with gaps:

    time_seconds,gpu,vram_total_bytes,vram_used_bytes,gfx_activity_ratio,processes
    1700000000,0,68702699520,21474836480,0.93,4242:1699990000:20401094656;4243:1699990001:524288

`processes` is `pid:start_time:vram_bytes`, with `;` between, empty for none; the activity is empty
where it was not reported.
"""

from __future__ import annotations

import csv
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from exporter.leaks.model import OTHERS, ProcessUse, Sample

HEADER = (
    "time_seconds",
    "gpu",
    "vram_total_bytes",
    "vram_used_bytes",
    "gfx_activity_ratio",
    "processes",
)
MOST_ROWS = 5_000_000
MOST_PROCESSES = 4096
MOST_POINTS = 2880
"""Of one series asked of a Prometheus, which itself gives no more than 11,000."""
MOST_BYTES = 256 << 20
TIMEOUT = 30.0
LEAST_STEP = 15.0
_SMOOTH = 300.0

Recording = Mapping[str, list[Sample]]
"""The samples of each device, by its name, in order of time."""


class InputError(Exception):
    """What was recorded can't be judged; the text says what is wrong, and where."""


# ---- A file ----------------------------------------------------------------------------------


def read_csv(path: Path) -> Recording:
    """The samples of a file.

    Raises:
        InputError: it can't be read, or a line is wrong; the text names the first such line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            recording = _ordered(_rows(path, file))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    if not recording:
        raise InputError(f"{path}: line 1: no samples follow the header")
    return recording


def _rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, Sample]]:
    reader = csv.reader(lines, strict=True)
    header = False
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                if tuple(row) != HEADER:
                    raise ValueError(f"expected the header {','.join(HEADER)}")
                header = True
                continue
            if reader.line_num > MOST_ROWS:
                raise ValueError(f"more than {MOST_ROWS} rows")
            yield _row(row)
    except UnicodeDecodeError:
        raise
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path}: line {max(1, reader.line_num)}: {error}") from error
    if not header:
        raise InputError(f"{path}: line 1: expected the header {','.join(HEADER)}")


def _row(row: list[str]) -> tuple[str, Sample]:
    if len(row) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} columns, got {len(row)}")
    time, gpu, total, used, activity, processes = (cell.strip() for cell in row)
    if not gpu or not gpu.isprintable() or len(gpu) > 128:
        raise ValueError(f"gpu: expected a name, got {gpu!r:.40}")
    uses = processes.split(";") if processes else []
    if len(uses) > MOST_PROCESSES:
        raise ValueError(f"processes: more than {MOST_PROCESSES}")
    sample = Sample(
        _number("time_seconds", time),
        _bytes("vram_total_bytes", total),
        _bytes("vram_used_bytes", used),
        None if not activity else _number("gfx_activity_ratio", activity),
        tuple(_use(text) for text in uses),
    )
    if not sample.vram_total_bytes:
        raise ValueError("vram_total_bytes: expected more than 0")
    if sample.vram_used_bytes > sample.vram_total_bytes:
        raise ValueError("vram_used_bytes: more than vram_total_bytes")
    if sample.gfx_activity_ratio is not None and not 0 <= sample.gfx_activity_ratio <= 1:
        raise ValueError(f"gfx_activity_ratio: expected 0 to 1, got {activity!r:.40}")
    return gpu, sample


def _use(text: str) -> ProcessUse:
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(f"processes: expected pid:start_time:vram_bytes, got {text!r:.80}")
    return ProcessUse(
        _bytes("pid", parts[0]), _number("start_time", parts[1]), _bytes("vram_bytes", parts[2])
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        _wrong(name, "a number", text)
    if not isfinite(value) or abs(value) >= 1 << 53:
        _wrong(name, "a number", text)
    return value


def _bytes(name: str, text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 20 else _number(name, text)
    if value != int(value) or not 0 <= value < 1 << 53:
        _wrong(name, "a whole number, 0 or more", text)
    return int(value)


def _wrong(name: str, what: str, text: str) -> NoReturn:
    raise ValueError(f"{name}: expected {what}, got {text!r:.40}")


def _ordered(rows: Iterable[tuple[str, Sample]]) -> Recording:
    recording: dict[str, list[Sample]] = {}
    for name, sample in rows:
        recording.setdefault(name, []).append(sample)
    for samples in recording.values():
        samples.sort(key=lambda sample: sample.time_seconds)
    return recording


# ---- A Prometheus ----------------------------------------------------------------------------

_Device = tuple[str, str, str]
"""Instance, gpu and partition."""
_Series = dict[_Device, dict[float, float]]


@dataclass(frozen=True, slots=True)
class Query:
    """What to ask of a Prometheus.

    Attributes:
        url: where it is; `/api/v1/query_range` is added.
        since: how far back, in seconds.
        until: the end, as Unix time.
    """

    url: str
    since: float
    until: float

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return float(max(LEAST_STEP, -(-self.since // MOST_POINTS)))


def read_prometheus(query: Query) -> Recording:
    """The samples that a Prometheus has of every device.

    A process there has no start time: a pid that is missing at one point and there at a later one
    is taken for another process. Memory that belongs to no partition has no owners by its nature,
    and is left out.

    Raises:
        InputError: it can't be asked, refuses, or does not answer as a Prometheus does.
    """
    smooth = f"[{max(query.step, _SMOOTH):.0f}s]"
    totals = _ask(query, "amdgpu_vram_total_bytes")
    used = _by_device(_ask(query, "amdgpu_vram_used_bytes"))
    activity = _by_device(_ask(query, f"avg_over_time(amdgpu_gfx_activity_ratio{smooth})"))
    counts = _by_device(_ask(query, "amdgpu_processes"))
    owners: dict[_Device, dict[int, dict[float, float]]] = {}
    for labels, points in _ask(query, "amdgpu_process_vram_bytes"):
        pid = labels.get("pid", "")
        number = int(pid) if pid.isdecimal() and len(pid) < 12 else OTHERS
        owners.setdefault(_device(labels), {})[number] = points
    telling = {instance for instance, _, _ in owners}
    devices = _by_device(totals)
    several = len({instance for instance, _, _ in devices}) > 1
    recording = {}
    for device, total in devices.items():
        instance, gpu, partition = device
        if partition == "shared":
            continue
        name = "/".join(part for part in (instance if several else "", gpu, partition) if part)
        samples = list(
            _samples(
                total,
                used.get(device, {}),
                activity.get(device) or activity.get((instance, gpu, ""), {}),
                owners.get(device, {}),
                None if instance in telling else counts.get(device, {}),
            )
        )
        if samples:
            recording[name] = samples
    if not recording:
        raise InputError(
            f"{query.url}: no amdgpu_vram_total_bytes with amdgpu_vram_used_bytes in this time"
        )
    return recording


def _samples(
    totals: Mapping[float, float],
    used: Mapping[float, float],
    activity: Mapping[float, float],
    owners: Mapping[int, Mapping[float, float]],
    known: Mapping[float, float] | None,
) -> Iterator[Sample]:
    started: dict[int, float] = {}
    """Put the series of a device together; where `known` is None, its owners always are."""
    for time in sorted(totals.keys() & used.keys()):
        there = {pid: points[time] for pid, points in owners.items() if time in points}
        started = {pid: started.get(pid, time) for pid in there}
        ratio = activity.get(time)
        total, taken = int(totals[time]), int(used[time])
        if not 0 < total < 1 << 53 or not 0 <= taken <= total:
            continue
        yield Sample(
            time,
            total,
            taken,
            None if ratio is None else min(1.0, max(0.0, ratio)),
            tuple(ProcessUse(pid, started[pid], max(0, int(vram))) for pid, vram in there.items())
            if known is None or time in known
            else None,
        )


def _device(labels: Mapping[str, str]) -> _Device:
    return labels.get("instance", ""), labels.get("gpu", "?"), labels.get("partition", "")


def _by_device(answer: Iterable[tuple[Mapping[str, str], dict[float, float]]]) -> _Series:
    found: _Series = {}
    for labels, points in answer:
        found.setdefault(_device(labels), {}).update(points)
    return found


def _ask(query: Query, expression: str) -> list[tuple[dict[str, str], dict[float, float]]]:
    """The series that an expression gives."""
    if urllib.parse.urlsplit(query.url).scheme not in ("http", "https"):
        raise InputError(f"{query.url!r:.200}: expected http://HOST:PORT or https://HOST:PORT")
    form = {
        "query": expression,
        "start": f"{query.until - query.since:.3f}",
        "end": f"{query.until:.3f}",
        "step": f"{query.step:.0f}",
    }
    address = f"{query.url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(form)}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
            body = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            why = _reason(error.read(4096))
        raise InputError(f"{query.url}: {error.code} {error.reason}{why}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"{query.url}: {reason}") from error
    if len(body) > MOST_BYTES:
        raise InputError(f"{query.url}: the answer is longer than {MOST_BYTES >> 20} MiB")
    try:
        return list(_points(json.loads(body)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{query.url}: no answer of a Prometheus ({error!r:.100})") from error


def _points(answer: Any) -> Iterator[tuple[dict[str, str], dict[float, float]]]:
    if answer["status"] != "success":
        raise ValueError(str(answer.get("error", answer["status"])))
    for series in answer["data"]["result"]:
        labels = {str(name): str(value) for name, value in series["metric"].items()}
        points = {float(time): float(text) for time, text in series["values"]}
        yield labels, {time: value for time, value in points.items() if isfinite(value)}


def _reason(body: bytes) -> str:
    try:
        return f": {json.loads(body)['error']:.200}"
    except (ValueError, LookupError, TypeError):
        return ""
