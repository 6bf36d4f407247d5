"""promtool's tests, from a case: what happens minute by minute, and when the alert must fire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from alerts.registry import ALERTS
from tests.alerts.cases import Case, Series
from tests.kernel.packages import debian_tool

DASHBOARDS = Path(__file__).parents[2] / "dashboards" / "json"
PANELS = {
    (dashboard["uid"], panel["title"]): panel["id"]
    for path in DASHBOARDS.glob("*.json")
    for dashboard in [json.loads(path.read_text())]
    for panel in dashboard["panels"]
}
"""The numbers of the panels by dashboard and title, from the dashboards themselves."""
RULES = Path(__file__).parents[2] / "alerts" / "rules"
Phase = Literal["quiet", "below", "fault", "gone", "reset"]
GAP = 7
"""Minutes without data, more than Prometheus looks back by itself."""
BLIND = 25
"""Minutes for which an alert outlives its data; by then the alert about vanished data fires."""


def promtool(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    """Status and output."""
    done = subprocess.run(
        [str(debian_tool("prometheus") / "usr/bin/promtool"), *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout.decode()


@dataclass(frozen=True, slots=True)
class Check:
    """That the alert fires in every minute from `first` to `last`, or in none of them."""

    first: int
    last: int
    firing: bool


@dataclass(frozen=True, slots=True)
class Story:
    """A course of things.

    Attributes:
        plot: phases with their minutes, from minute 0; a reset takes no time.
        told: the minute at which the alert must fire with exactly its labels and texts.
    """

    name: str
    plot: tuple[tuple[Phase, int], ...]
    checks: tuple[Check, ...]
    told: int | None = None


def stories(case: Case) -> Iterator[Story]:
    """All that is shown of a case."""
    warm, fires = case.warm, case.warm + case.minutes
    lasting = case.minutes + 4
    gone = BLIND if case.vanishes else 0
    end = warm + lasting + gone + 3
    before = (Check(0, fires - 1 if case.exact else warm - 1, firing=False),)
    yield Story(
        "fires, does not end by absence, and ends with the fault",
        (
            ("quiet", warm),
            ("fault", lasting),
            ("gone", gone),
            ("fault", 3),
            ("quiet", case.clears + 10),
        ),
        (
            *before,
            Check(fires, end - 1, firing=True),
            Check(end + case.clears, end + case.clears + 9, firing=False),
        ),
        told=fires,
    )
    gap = GAP if case.vanishes else 0
    yield Story(
        "survives a reset and a gap",
        (
            ("quiet", warm),
            ("fault", case.minutes + 1),
            ("reset", 0),
            ("fault", 10),
            ("gone", gap),
            ("fault", 10),
        ),
        (Check(fires, fires + 20 + gap, firing=True),),
    )
    if case.below:
        yield Story(
            "is silent just below",
            (("quiet", warm), ("below", case.minutes + 30)),
            (Check(0, fires + 29, firing=False),),
        )
    if case.exact and case.minutes > 1:
        yield Story(
            "is silent if the fault is short",
            (("quiet", warm), ("fault", case.minutes), ("quiet", case.minutes + 10)),
            (Check(0, fires + case.minutes + 9, firing=False),),
        )


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(float(value))


def _values(series: Series, plot: Sequence[tuple[Phase, int]]) -> str:
    samples: list[str] = []
    total = 0.0
    for phase, minutes in plot:
        if phase == "reset":
            total = 0.0
            continue
        shown = "fault" if phase == "gone" else phase
        value = {"quiet": series.quiet, "fault": series.fault, "below": series.below}[shown]
        if shown == "below" and value is None:
            value = series.quiet
        for _ in range(minutes):
            if series.kind == "counter":
                total += (value or 0.0) if samples else 0.0
            if phase == "gone" or value is None:
                absent = samples and samples[-1] in ("_", "stale")
                samples.append("_" if absent or not samples else "stale")
            elif series.kind == "timestamp":
                samples.append(_number(60 * len(samples) - value))
            else:
                samples.append(_number(total if series.kind == "counter" else value))
    return " ".join(samples)


def input_series(series: Series, plot: Sequence[tuple[Phase, int]]) -> dict[str, str]:
    """A series as promtool has it."""
    return {
        "series": _selector(series.name, series.labels),
        "values": _values(series, plot),
    }


def _selector(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def check(alert: str, checked: Check) -> dict[str, Any]:
    """The check as promtool has it: in how many minutes the alert fired."""
    minutes = checked.last - checked.first + 1
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    return {
        "expr": f"sum(count_over_time({firing}[{60 * minutes - 1}s])) or vector(0)",
        "eval_time": f"{checked.last}m",
        "exp_samples": [{"labels": "{}", "value": minutes if checked.firing else 0}],
    }


def _told(case: Case, rule: Mapping[str, Any]) -> dict[str, Any]:
    alert = ALERTS[case.alert]
    dashboard = f"https://grafana.example.com/d/{alert.panel[0]}?"
    if alert.scope != "fleet":
        dashboard += "var-instance=" + case.labels["instance"].replace(":", "%3A") + "&"
    if alert.scope == "gpu":
        dashboard += f"var-gpu={case.labels['gpu']}&"
    dashboard += f"viewPanel={PANELS[alert.panel]}"
    return {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {
            "summary": alert.summary,
            "description": case.description,
            "runbook_url": f"https://runbooks.example.com/amdgpu-exporter/{case.alert}.md",
            "dashboard_url": dashboard,
        },
    }


def rules_of(alert: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Of the rule files, the alert and the recording rules it may use; and the alert's rule."""
    kept: list[dict[str, Any]] = []
    found: Mapping[str, Any] = {}
    for path in sorted(RULES.glob("*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            if group["name"] in ("amdgpu-verdicts", "amdgpu-hourly"):
                kept.insert(0, group)
            for rule in group["rules"]:
                if rule.get("alert") == alert:
                    found = rule
                    kept.append({**group, "rules": [rule]})
    return {"groups": kept}, found


def prove(case: Case, folder: Path) -> tuple[int, str]:
    """Run promtool over all stories of a case."""
    rules, rule = rules_of(case.alert)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    tests = []
    for story in stories(case):
        told = [] if story.told is None else [(story.told, _told(case, rule))]
        tests.append(
            {
                "name": story.name,
                "interval": "1m",
                "input_series": [input_series(series, story.plot) for series in case.series],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": [expected]}
                    for minute, expected in told
                ],
                "promql_expr_test": [check(case.alert, checked) for checked in story.checks],
            }
        )
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in rules["groups"]],
        "tests": tests,
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(document, width=1000, allow_unicode=True))
    return promtool("test", "rules", str(path))
