"""The landing page: what a person wants to know of the node at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any

from exporter import __version__
from exporter.snapshot import Device, Snapshot
from exporter.sources.supervisor import SourceReport

_STYLE = """
:root { color-scheme: light dark; --line: #8883; --soft: #888; --bad: #c4161c; --good: #2b7a3d; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 92rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p.sub { color: var(--soft); margin: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; } td.wide { white-space: normal; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); }
.soft { color: var(--soft); }
.banner { border: 2px solid var(--bad); border-radius: .4rem; padding: .6rem 1rem; margin: 1rem 0; }
nav a { margin-right: 1rem; } code { font-size: .9em; }
"""
_DEAD = ("zombie", "gone")
"""States of a process that has ended and holds memory all the same."""
_NONE = '<td class="n soft">–</td>'


def _number(value: float | None, text: Callable[[float], str]) -> str:
    return _NONE if value is None else f'<td class="n">{escape(text(value))}</td>'


def _gibibytes(value: float) -> str:
    return f"{value / (1 << 30):.1f} GiB"


def _reading(device: Device, collector: str, take: Callable[[Any], Any]) -> Any:
    reading = device.readings.get(collector)
    return None if reading is None else take(reading)


def _temperature(device: Device, sensor: str) -> str:
    reading = device.readings.get("temperature")
    if reading is None or sensor not in reading.sensors:
        return _NONE
    value = reading.sensors[sensor]
    limit = reading.critical.get(sensor, reading.configured_critical.get(sensor))
    kind = "bad" if limit is not None and value >= limit else ""
    return f'<td class="n {kind}">{value:.0f} °C</td>'


def _links(device: Device) -> str:
    up = _reading(device, "xgmi", lambda x: x.up)
    if not up:
        return _NONE
    working = sum(1 for state in up.values() if state)
    kind = "bad" if working < len(up) else ""
    return f'<td class="n {kind}">{working} of {len(up)}</td>'


def _pcie(device: Device) -> str:
    pcie = device.readings.get("pcie")
    if pcie is None or pcie.transfers is None or pcie.width is None:
        return _NONE
    degraded = (pcie.max_transfers is not None and pcie.transfers < pcie.max_transfers) or (
        pcie.max_width is not None and pcie.width < pcie.max_width
    )
    kind = "bad" if degraded else ""
    return f'<td class="n {kind}">{pcie.transfers / 1e9:g} GT/s x{pcie.width}</td>'


def _state(device: Device) -> str:
    if not device.up:
        return f'<td class="bad wide">down: {escape(device.why_down)}</td>'
    if device.suspended:
        return '<td class="soft">suspended</td>'
    return '<td class="good">up</td>'


def _gpu(device: Device) -> str:
    partition = "" if device.key.partition is None else f" / {device.key.partition}"
    return f"{device.gpu}{escape(partition)}"


def _device_row(device: Device) -> str:
    name = _reading(device, "identity", lambda i: i.name) or ""
    used = _reading(device, "memory", lambda m: m.used)
    total = _reading(device, "memory", lambda m: m.total)
    memory = (
        _NONE
        if used is None or total is None
        else f'<td class="n">{_gibibytes(used)} of {_gibibytes(total)}</td>'
    )
    cells = [
        f'<td class="n">{_gpu(device)}</td>',
        f"<td><code>{escape(device.key.address)}</code></td>",
        f"<td>{escape(name)}</td>",
        _state(device),
        _temperature(device, "junction"),
        _temperature(device, "hbm"),
        _number(_reading(device, "power", lambda p: p.watts), lambda v: f"{v:.0f} W"),
        _number(_reading(device, "activity", lambda a: a.gfx), lambda v: f"{v * 100:.0f} %"),
        memory,
        _links(device),
        _pcie(device),
        _number(_reading(device, "pcie", lambda p: p.replays), lambda v: f"{v:g}"),
    ]
    return "<tr>" + "".join(cells) + "</tr>"


def _process_rows(snapshot: Snapshot) -> Iterable[str]:
    """A row per process and device, those that hold most of a device first."""
    for device in snapshot.devices:
        processes = device.readings.get("processes")
        if processes is None:
            continue
        partition = "" if device.key.partition is None else f" / {device.key.partition}"
        for pid, state in processes.state.items():
            who = processes.identity(pid)
            names = ("job_id", "namespace", "pod", "container")
            place = [who[name] for name in names if who[name]] or [who["container_id"][:12]]
            cells = [
                f'<td class="n">{device.gpu}{escape(partition)}</td>',
                f'<td class="n">{escape(pid)}</td>',
                f"<td>{escape(who['command'])}</td>",
                f"<td>{escape(who['user'])}</td>",
                f"<td>{escape(' / '.join(place))}</td>",
                _number(processes.vram[pid], _gibibytes),
                f'<td class="{"bad" if state in _DEAD else ""}">{escape(state)}</td>',
            ]
            yield "<tr>" + "".join(cells) + "</tr>"


def _suspected(device: Device) -> bool:
    return bool(_reading(device, "leaks", lambda leaks: leaks.process or leaks.residue))


def _leak_row(device: Device) -> str:
    leaks = device.readings["leaks"]
    kinds = [kind for kind in ("process", "residue") if getattr(leaks, kind)]
    since = "" if leaks.since is None else f"{_utc(leaks.since)} UTC"
    return (
        f'<tr><td class="n">{_gpu(device)}</td><td class="bad">{" and ".join(kinds)}</td>'
        + _number(leaks.pid, str)
        + f"<td>{since}</td>"
        + _number(None if leaks.pace is None else leaks.pace * 3600, _gibibytes)
        + f'<td>{escape(leaks.confidence)}</td><td class="wide">{escape(leaks.evidence)}</td></tr>'
    )


def _source_row(report: SourceReport) -> str:
    if report.up:
        state = '<td class="good">up</td>'
    elif report.paused:
        state = '<td class="soft">resting: the others give all that it could</td>'
    else:
        state = f'<td class="bad wide">down: {escape(report.reason)}'
        state += f" – {escape(report.remedy)}</td>" if report.remedy else "</td>"
    restarts = sum(report.restarts.values())
    return (
        f'<tr><td>{escape(report.name)}</td>{state}<td class="n">{len(report.devices)}</td>'
        f'<td class="n">{restarts}</td></tr>'
    )


def _table(heads: Sequence[str], rows: Iterable[str], nothing: str) -> str:
    """A table; a head that starts with ">" belongs to a column of numbers."""
    body = "".join(rows)
    if not body:
        return f"<p>{escape(nothing)}</p>"
    head = "".join(
        f'<th class="{"n" if text.startswith(">") else ""}">{escape(text.lstrip(">"))}</th>'
        for text in heads
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def landing_html(snapshot: Snapshot | None, telemetry_path: str) -> bytes:
    """The page; before the first poll it says that nothing has been read yet."""
    links = (
        (telemetry_path, "metrics"),
        ("/api/v1/snapshot", "snapshot (JSON)"),
        ("/-/healthy", "healthy"),
        ("/-/ready", "ready"),
    )
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>amdgpu-exporter</title><style>{_STYLE}</style></head><body>",
        "<h1>amdgpu-exporter</h1>",
        f"<p class='sub'>version {escape(__version__)}</p>",
    ]
    if snapshot is None:
        parts.append("<p>The first poll has not ended yet. Reload this page in a few seconds.</p>")
    else:
        parts.extend(_body(snapshot))
    parts.append("<h2>Links</h2><nav>")
    parts += [f"<a href='{escape(path)}'>{escape(text)}</a>" for path, text in links]
    parts.append("</nav></body></html>\n")
    return "".join(parts).encode()


def _utc(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, timezone.utc):%Y-%m-%d %H:%M:%S}"


def _body(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.simulated:
        yield (
            "<p class='banner'><strong class='bad'>Simulated.</strong> Every value on this page "
            "is made up; none comes from hardware.</p>"
        )
    yield (
        f"<p class='sub'>poll {snapshot.sequence} at {_utc(snapshot.timestamp)} UTC, "
        f"every {snapshot.interval:g} s</p><h2>GPUs</h2>"
    )
    heads = (
        ">GPU", "PCI address", "Name", "State", ">Junction", ">HBM", ">Power", ">Activity",
        ">VRAM", ">XGMI links up", ">PCIe", ">Replays",
    )  # fmt: skip
    yield _table(heads, map(_device_row, snapshot.devices), "No GPU was found on this node.")
    counts = ", ".join(f"{view} {count}" for view, count in snapshot.views.items())
    yield f"<p class='soft'>Counted by: {escape(counts or 'no source')}</p>"
    if "processes" in snapshot.collectors:
        yield "<h2>Processes</h2>"
        columns = (">GPU", ">PID", "Command", "User", "Job or container", ">VRAM", "State")
        yield _table(columns, _process_rows(snapshot), "No process holds VRAM.")
    suspected = [device for device in snapshot.devices if _suspected(device)]
    if suspected:
        yield "<h2>VRAM leaks</h2>"
        columns = (">GPU", "What is suspected", ">PID", "Since", ">Per hour", "How sure", "Why")
        yield _table(columns, map(_leak_row, suspected), "")
    yield "<h2>Sources</h2>"
    yield _table(
        ("Source", "State", ">GPUs", ">Restarts"), map(_source_row, snapshot.sources), "None is on."
    )
    yield "<h2>Node</h2>"
    node = (
        f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>"
        for name, text in snapshot.node.items()
    )
    yield _table(("What", "Version"), node, "Nothing is known of it.")
    failing = [name for name, health in snapshot.collectors.items() if not health.success]
    yield (
        f"<p class='soft'>Collectors: {escape(', '.join(snapshot.collectors))}."
        + (f" <span class='bad'>Failing: {escape(', '.join(failing))}.</span>" if failing else "")
        + "</p>"
    )
