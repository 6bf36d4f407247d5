"""The rules of dashboard-linter hold, each exclusion with its reason; and the rules themselves."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.dashboards.grafana import dashboards, panels, variables
from tests.dashboards.rules import RULES

GIVEN = dashboards()
_ONE_NODE = "the dashboard is about one node, which a reader chooses"
_HOURS = "idle is judged over hours, whatever the zoom"
_WHOLE = "one figure for the time shown"
EXCLUDED = {
    ("template-instance-rule", "node", "instance"): _ONE_NODE,
    ("template-instance-rule", "gpu", "instance"): _ONE_NODE,
    ("template-instance-rule", "interconnect", "instance"): _ONE_NODE,
    ("target-rate-interval-rule", "interconnect", "XGMI matrix"): _WHOLE,
    ("target-rate-interval-rule", "capacity", "Energy used while idle"): _WHOLE,
    ("target-rate-interval-rule", "capacity", "GPUs held but idle"): _HOURS,
    ("target-rate-interval-rule", "capacity", "Activity, by the hour"): "a trend over weeks",
    ("target-rate-interval-rule", "capacity", "Active by the trend"): "a trend over weeks",
}
"""Rule, dashboard and place, with the reason."""


def _complaints() -> Iterator[tuple[tuple[str, str, str], str]]:
    for rule, check in RULES.items():
        for name, dashboard in GIVEN.items():
            for place, wrong in check(dashboard):
                yield (rule, name, place), wrong


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("rule", RULES)
def test_rule_holds(rule: str, name: str) -> None:
    """No complaint but those that are excluded."""
    complaints = [
        (place, wrong)
        for place, wrong in RULES[rule](GIVEN[name])
        if (rule, name, place) not in EXCLUDED
    ]
    assert [] == complaints


def test_exclusions_are_used() -> None:
    """An exclusion that nothing needs is taken out of the list."""
    assert EXCLUDED.keys() == {place for place, _ in _complaints()} & EXCLUDED.keys()


def _spoiled(rule: str) -> dict[str, Any]:
    """A dashboard that breaks one rule."""
    dashboard = deepcopy(GIVEN["reliability"])
    panel = next(p for p in panels(dashboard) if p["title"] == "Rejected values")
    target, given = panel["targets"][0], variables(dashboard)
    text = target["expr"]
    if rule == "template-datasource-rule":
        given["datasource"]["query"] = "loki"
    elif rule in ("template-job-rule", "template-instance-rule"):
        given[rule.split("-")[1]]["allValue"] = ".*"
    elif rule == "template-label-promql-rule":
        given["job"]["query"] = "label_values(job)"
    elif rule == "template-on-time-change-reload-rule":
        given["job"]["refresh"] = 1
    elif rule == "panel-datasource-rule":
        target["datasource"] = {"type": "prometheus", "uid": "fixed"}
    elif rule == "panel-title-description-rule":
        panel["description"] = ""
    elif rule == "panel-units-rule":
        panel["fieldConfig"]["defaults"]["unit"] = "furlongs"
    elif rule == "panel-no-targets-rule":
        panel["targets"] = []
    elif rule == "target-legend":
        target["legendFormat"] = "__auto"
    elif rule == "target-rate-interval-rule":
        target["expr"] = text.replace("$__rate_interval", "5m")
    elif rule == "target-counter-agg-rule":
        target["expr"] = text.replace("rate(", "max_over_time(")
    elif rule == "unit-fits-metric":
        target["expr"] = "amdgpu_power_watts" + text[text.index("{") : text.index("}") + 1]
    elif rule == "uneditable-dashboard":
        dashboard["editable"] = True
    else:
        label = rule.split("-")[1]
        target["expr"] = text.replace(f'{label}=~"${label}"', f'{label}!=""')
    return dashboard


@pytest.mark.parametrize("rule", RULES)
def test_rule_finds_what_it_looks_for(rule: str) -> None:
    """A dashboard that was spoiled in one place is complained of."""
    assert len(list(RULES[rule](GIVEN["reliability"]))) < len(list(RULES[rule](_spoiled(rule))))
