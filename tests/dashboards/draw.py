"""Draws a dashboard as one HTML page with inline SVG: what its JSON says, with what it queries.

Not Grafana: only the kinds of panels, options and transformations that the dashboards use, drawn
so that a reviewer sees the layout, the titles, units, thresholds and legends, and real curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tests.dashboards.grafana import Values, put_in
from tests.dashboards.site import BEGIN, END, SPAN, Prometheus, Series
from tests.dashboards.units import written

WIDTH, CELL, GAP = 1400, 34, 6
LEFT, RIGHT = 66, 14
"""Of the axes in a panel over time."""
STEP = 180.0
COLOURS = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "text": "#ccccdc",
    "transparent": "transparent",
}
PALETTE = "#7eb26d #eab839 #6ed0e0 #ef843c #e24d42 #1f78c1 #ba43a9 #705da0 #508642 #cca300 #447ebc"
_STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:12px Inter,Helvetica,Arial,sans-serif}
.bar{padding:10px 12px;font-size:15px;font-weight:600}.bar span{margin-left:14px;font-size:12px;
font-weight:400;background:#22252b;border-radius:2px;padding:4px 8px}
.panel,.row{position:absolute;box-sizing:border-box;overflow:hidden}
.panel{background:#181b1f;border:1px solid #24262b;border-radius:2px}
.row{font-size:14px;padding:8px 4px;font-weight:600}
.title{padding:6px 8px 4px;font-weight:600;white-space:nowrap}
.legend{padding:0 8px;line-height:16px;font-size:11px;overflow:hidden}
.legend span{margin-right:10px;white-space:nowrap;display:inline-block}
.legend i{display:inline-block;width:12px;height:3px;margin-right:4px;vertical-align:middle}
.stat{font-size:34px;font-weight:600;text-align:center;padding-top:14px}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:4px 8px;height:17px;
border-bottom:1px solid #24262b;white-space:nowrap;max-width:260px;overflow:hidden}
th{color:#6e9fff;font-weight:600}td.n,th.n{text-align:right}.none{text-align:center;padding:30px;
color:#9a9aa8}svg text{fill:#9a9aa8;font-size:10px}
polyline,line{shape-rendering:crispEdges;stroke-width:1.4}
"""


def named(legend: str, labels: Mapping[str, str]) -> str:
    """The name of a series."""
    return " ".join(re.sub(r"\{\{(\w+)\}\}", lambda f: labels.get(f[1], ""), legend).split())


def page(dashboard: Mapping[str, Any], prometheus: Prometheus, values: Values) -> tuple[str, int]:
    """The HTML of a dashboard, and how high it is in pixels."""
    top = 44
    parts = [f"<!DOCTYPE html><meta charset=utf-8><style>{_STYLE}</style>"]
    shown = "".join(
        f"<span>{escape(variable.get('label') or variable['name'])}: "
        f"{escape(values.get(variable['name'], '')).replace('.+', 'All').replace('.*', 'All')}"
        "</span>"
        for variable in dashboard["templating"]["list"]
        if variable["type"] != "datasource"
    )
    parts.append(f"<div class=bar>{escape(dashboard['title'])}{shown}</div>")
    height = 0
    marks = _marks(dashboard, prometheus, values)
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y = grid["x"] * (WIDTH / 24), top + grid["y"] * CELL
        w, h = grid["w"] * (WIDTH / 24) - GAP, grid["h"] * CELL - GAP
        height = max(height, int(y + h))
        place = f"left:{x + GAP / 2:.0f}px;top:{y:.0f}px;width:{w:.0f}px;height:{h:.0f}px"
        if panel["type"] == "row":
            parts.append(f'<div class=row style="{place}">▾ {escape(panel["title"])}</div>')
            continue
        body = _body(panel, prometheus, values, int(w), int(h) - 28)
        if panel["type"] == "timeseries":
            body = body.replace("</svg>", f"{_lines(marks, int(w))}</svg>")
        parts.append(
            f'<div class=panel style="{place}"><div class=title>{escape(panel["title"])}</div>'
            f"{body}</div>"
        )
    return "\n".join(parts), height + GAP


def _marks(
    dashboard: Mapping[str, Any], prometheus: Prometheus, values: Values
) -> list[tuple[float, str]]:
    """When each annotation begins, and its colour."""
    return [
        (run[0][0], COLOURS[annotation["iconColor"]])
        for annotation in dashboard["annotations"].get("list", [])
        for series in prometheus.over_time(put_in(annotation["expr"], values), STEP)
        for run in _runs(series)
    ]


def _lines(marks: Iterable[tuple[float, str]], width: int) -> str:
    places = ((_x(moment, LEFT, width - LEFT - RIGHT), colour) for moment, colour in marks)
    return "".join(
        f'<line x1="{x:.0f}" x2="{x:.0f}" y1="0" y2="100%" stroke="{colour}"'
        ' stroke-dasharray="2 3"/>'
        for x, colour in places
    )


def _body(
    panel: Mapping[str, Any], prometheus: Prometheus, values: Values, width: int, height: int
) -> str:
    answers = []
    for target in panel["targets"]:
        text = put_in(target["expr"], values)
        found = prometheus.at_once(text) if target["instant"] else prometheus.over_time(text, STEP)
        answers.append((target, found))
    if not any(found for _, found in answers):
        empty = panel["fieldConfig"]["defaults"].get("noValue", "No data")
        return f"<div class=none>{empty}</div>"
    return {
        "timeseries": _timeseries,
        "stat": _stat,
        "bargauge": _bars,
        "state-timeline": _states,
        "table": _table,
    }[panel["type"]](panel, answers, width, height)


Answers = Sequence[tuple[Mapping[str, Any], Sequence[Series]]]


def _defaults(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = panel["fieldConfig"]["defaults"]
    return defaults


def _colour(value: float, thresholds: Mapping[str, Any]) -> str:
    colour = "text"
    for step in thresholds["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return COLOURS[colour]


def _mapped(value: float, config: Mapping[str, Any]) -> tuple[str, str] | None:
    for mapping in config.get("mappings", []):
        result = mapping["options"].get(f"{value:.0f}")
        if result:
            return result["text"], COLOURS[result["color"]]
    return None


def _series(answers: Answers) -> Iterable[tuple[Mapping[str, Any], str, Series]]:
    for target, found in answers:
        for series in sorted(found, key=lambda s: named(target["legendFormat"], s.labels)):
            yield target, named(target["legendFormat"], series.labels), series


# ------------------------------------------------------------------------------- kinds


def _stat(panel: Mapping[str, Any], answers: Answers, width: int, height: int) -> str:
    defaults = _defaults(panel)
    cells = []
    for _, _, series in _series(answers):
        value = series.values[-1][1]
        text, colour = _mapped(value, defaults) or (
            written(value, defaults["unit"], defaults.get("decimals")),
            _colour(value, defaults["thresholds"]),
        )
        cells.append(f'<div class=stat style="color:{colour}">{text}</div>')
    return "".join(cells)


def _bars(panel: Mapping[str, Any], answers: Answers, width: int, height: int) -> str:
    defaults = _defaults(panel)
    listed = [(name, series.values[-1][1]) for _, name, series in _series(answers)]
    most = defaults.get("max") or max((value for _, value in listed), default=1) or 1
    lines = []
    for name, value in listed:
        share = max(0.0, min(value / most, 1.0)) * (width - 230)
        colour = _colour(value, defaults["thresholds"])
        lines.append(
            f"<div style='display:flex;padding:4px 8px;align-items:center'>"
            f"<div style='width:110px'>{escape(name)}</div>"
            f"<div style='width:{share:.0f}px;height:16px;background:{colour};opacity:.7'></div>"
            f"<div style='padding-left:8px'>"
            f"{written(value, defaults['unit'], defaults.get('decimals'))}</div></div>"
        )
    return "".join(lines)


def _x(moment: float, left: float, width: float) -> float:
    return left + (moment - BEGIN) / SPAN * width


def _hours(left: float, width: float, bottom: float) -> str:
    marks = []
    for hour in range(int(SPAN / 3600) + 1):
        x = _x(BEGIN + hour * 3600, left, width)
        marks.append(
            f'<text x="{x:.0f}" y="{bottom + 13:.0f}" text-anchor="middle">{hour} h</text>'
        )
    return "".join(marks)


def _runs(series: Series) -> Iterable[list[tuple[float, float]]]:
    """The parts of a series between which nothing was measured."""
    run: list[tuple[float, float]] = []
    for moment, value in series.values:
        if run and (moment - run[-1][0] > 1.5 * STEP or not math.isfinite(value)):
            yield run
            run = []
        if math.isfinite(value):
            run.append((moment, value))
    if run:
        yield run


def _states(panel: Mapping[str, Any], answers: Answers, width: int, height: int) -> str:
    listed = list(_series(answers))
    left, tall = 170, max(12, min(30, (height - 24) / max(1, len(listed))))
    wide = width - left - 16
    parts = []
    for number, (_, name, series) in enumerate(listed):
        y = number * tall + 4
        parts.append(f'<text x="8" y="{y + tall / 2 + 3:.0f}">{escape(name)}</text>')
        for run in _runs(series):
            start = run[0]
            for here, following in zip(run, [*run[1:], None], strict=True):
                if following is None or following[1] != here[1]:
                    end = min(following[0] if following else here[0] + STEP, END)
                    x, w = _x(start[0], left, wide), (end - start[0]) / SPAN * wide
                    text, colour = _mapped(here[1], _defaults(panel)) or (
                        f"{here[1]:g}",
                        _colour(here[1], _defaults(panel)["thresholds"]),
                    )
                    parts.append(
                        f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.1f}" height="{tall - 4:.0f}"'
                        f' fill="{colour}" opacity=".75"/>'
                    )
                    if w > 50:
                        parts.append(
                            f'<text x="{x + 6:.0f}" y="{y + tall / 2 + 2:.0f}"'
                            f' style="fill:#111">{text}</text>'
                        )
                    if following:
                        start = following
    parts.append(_hours(left, wide, len(listed) * tall + 2))
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def _ticks(low: float, high: float, unit: str) -> list[float]:
    rough = (high - low) / 4 or 1
    size = 1024.0 ** int(math.log(max(rough, 1), 1024)) if unit == "bytes" else 1.0
    power = 10 ** math.floor(math.log10(rough / size)) * size
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * n for n in range(first, int(high / step + 1e-9) + 1)]


def _timeseries(panel: Mapping[str, Any], answers: Answers, width: int, height: int) -> str:
    defaults = _defaults(panel)
    custom = defaults.get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    dashed = {
        override["matcher"]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if any(p["id"] == "custom.lineStyle" for p in override["properties"])
    }
    listed = list(_series(answers))
    rows = _legend_rows([name for _, name, _ in listed], width, height)
    tall, left = height - 24 - rows * 16 - 6, LEFT
    wide = width - LEFT - RIGHT
    sums: dict[float, float] = {}
    curves: list[tuple[str, str, bool, list[list[tuple[float, float, float]]]]] = []
    palette = PALETTE.split()
    for number, (target, name, series) in enumerate(listed):
        line = target["refId"] in dashed
        runs = []
        for run in _runs(series):
            points = []
            for moment, value in run:
                base = sums.get(moment, 0.0) if stacked and not line else 0.0
                points.append((moment, base, base + value))
                if stacked and not line:
                    sums[moment] = base + value
            runs.append(points)
        colour = palette[number % len(palette)]
        curves.append((name, colour, line, runs))
    shown = [top for _, _, _, runs in curves for run in runs for _, _, top in run] or [0.0]
    low = min(defaults["min"], *shown) if "min" in defaults else min(shown)
    high = max(defaults["max"], *shown) if "max" in defaults else max(shown)
    if low == high:
        low, high = low - (low != 0 and "min" not in defaults), high + 1
    margin = 0.0 if "max" in defaults else (high - low) * 0.06
    high += margin
    low -= 0.0 if "min" in defaults else margin

    def y(value: float) -> float:
        return 10 + (high - value) / (high - low) * (tall - 10)

    parts = []
    for tick in _ticks(low, high, defaults["unit"]):
        parts.append(
            f'<line x1="{left}" x2="{left + wide}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"'
            ' stroke="#26282e"/>'
            f'<text x="{left - 6}" y="{y(tick) + 3:.1f}" text-anchor="end">'
            f"{written(tick, defaults['unit'])}</text>"
        )
    parts.append(_hours(left, wide, tall))
    for _, colour, line, runs in curves:
        for part in runs:
            up = " ".join(f"{_x(t, left, wide):.0f},{y(v):.1f}" for t, _, v in part)
            if stacked and not line:
                down = " ".join(f"{_x(t, left, wide):.0f},{y(b):.1f}" for t, b, _ in part[::-1])
                parts.append(f'<polygon points="{up} {down}" fill="{colour}" opacity=".3"/>')
            dash = ' stroke-dasharray="6 5"' if line else ""
            parts.append(f'<polyline points="{up}" fill="none" stroke="{colour}"{dash}/>')
            if len(part) <= 2:
                x, v = _x(part[0][0], left, wide), y(part[0][2])
                parts.append(f'<circle cx="{x:.0f}" cy="{v:.1f}" r="2" fill="{colour}"/>')
    if custom.get("thresholdsStyle", {}).get("mode") == "dashed":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None and low <= step["value"] <= high:
                parts.append(
                    f'<line x1="{left}" x2="{left + wide}" y1="{y(step["value"]):.1f}"'
                    f' y2="{y(step["value"]):.1f}" stroke="{COLOURS[step["color"]]}"'
                    ' stroke-dasharray="3 4"/>'
                )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour, _, _ in curves
    )
    return (
        f'<svg width="{width}" height="{tall + 20}">{"".join(parts)}</svg>'
        f'<div class=legend style="height:{rows * 16}px">{legend}</div>'
    )


def _legend_rows(names: Sequence[str], width: int, height: int) -> int:
    rows, x = 1, 0.0
    for name in names:
        wide = 28 + 6.1 * len(name)
        if x + wide > width - 16:
            rows, x = rows + 1, 0.0
        x += wide
    return min(rows, max(1, int(height * 0.35 / 16)))


# ------------------------------------------------------------------------------- tables

Frame = list[dict[str, Any]]


def _transformed(panel: Mapping[str, Any], answers: Answers) -> tuple[list[str], Frame]:
    """Columns and lines, after the panel's transformations."""
    single = len(answers) == 1
    frames: list[Frame] = [
        [
            {**s.labels, "Value" if single else f"Value #{target['refId']}": s.values[-1][1]}
            for s in found
        ]
        for target, found in answers
    ]
    lines = [line for frame in frames for line in frame]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    for step in panel["transformations"]:
        options = step["options"]
        if step["id"] == "merge":
            merged: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
            for line in lines:
                key = tuple(sorted((k, v) for k, v in line.items() if isinstance(v, str)))
                merged.setdefault(key, {}).update(line)
            lines = list(merged.values())
        elif step["id"] == "filterFieldsByName":
            columns = [name for name in columns if name in options["include"]["names"]]
        elif step["id"] == "organize":
            columns.sort(key=lambda name: options["indexByName"][name])
            names = options["renameByName"]
            lines = [{names.get(k, k): v for k, v in line.items()} for line in lines]
            columns = [names.get(name, name) for name in columns]
        elif step["id"] == "groupingToMatrix":
            row, column = options["rowField"], options["columnField"]
            heads = sorted({line[column] for line in lines}, key=_natural)
            by_row: dict[str, dict[str, Any]] = {}
            first = f"{row}\\{column}"
            for line in lines:
                by_row.setdefault(line[row], {first: line[row]})[line[column]] = line["Value"]
            columns = [first, *heads]
            lines = [by_row[name] for name in sorted(by_row, key=_natural)]
        else:
            raise AssertionError(f"no transformation {step['id']} is known here")
    return columns, lines


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part or 0) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text)]


def _config(panel: Mapping[str, Any], column: str) -> dict[str, Any]:
    config: dict[str, Any] = dict(_defaults(panel))
    for override in panel["fieldConfig"]["overrides"]:
        matcher = override["matcher"]
        if matcher["options"] == column or (
            matcher["id"] == "byRegexp" and re.search(matcher["options"], column)
        ):
            config.update({p["id"]: p["value"] for p in override["properties"]})
    return config


def _table(panel: Mapping[str, Any], answers: Answers, width: int, height: int) -> str:
    columns, lines = _transformed(panel, answers)
    if "groupingToMatrix" not in [step["id"] for step in panel["transformations"]]:
        lines.sort(key=lambda line: [_natural(str(line.get(c, ""))) for c in columns])
        for by in panel["options"].get("sortBy", []):
            name, falling = by["displayName"], by["desc"]
            lines.sort(key=lambda line: line.get(name, 0.0), reverse=falling)
    head = "".join(
        f"<th{'' if any(isinstance(line.get(c), str) for line in lines) else ' class=n'}>"
        f"{escape(c)}</th>"
        for c in columns
    )
    body = "".join(
        f"<tr>{''.join(_cell(line.get(c), _config(panel, c)) for c in columns)}</tr>"
        for line in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object, config: Mapping[str, Any]) -> str:
    if not isinstance(value, float):
        return f"<td>{escape(str(value or ''))}</td>"
    text, colour = _mapped(value, config) or (
        written(value, config["unit"], config.get("decimals")),
        _colour(value, config["thresholds"]),
    )
    dark = "inherit" if colour == "transparent" else "#111"
    look = config.get("custom.cellOptions", {}).get("type")
    style = {
        "color-text": f"color:{colour}",
        "color-background": f"background:{colour};color:{dark}",
    }.get(look, "")
    return f'<td class=n style="{style}">{text}</td>'
