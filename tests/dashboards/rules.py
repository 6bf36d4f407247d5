"""The rules of grafana/dashboard-linter that apply to Prometheus, and a few of pint's, in Python.

dashboard-linter itself is a Go program that no package registry has. Its two rules for LogQL are
left out, since nothing here asks Loki. A rule gets a dashboard and yields complaints, each with the
place that it is about: the title of a panel, or the name of a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.dashboards.grafana import asked, chosen, panels, put_in, variables
from tests.dashboards.promql import Matcher, Selector, selectors
from tests.dashboards.units import UNITS

Dashboard = Mapping[str, Any]
Complaint = tuple[str, str]
"""The place, and what is wrong there."""

_RATES = frozenset({"rate", "irate", "increase"})
_OF_GAUGES = frozenset({"delta", "idelta", "deriv", "predict_linear"})
_BY_SUFFIX = {"_celsius": {"celsius"}, "_watts": {"watt"}, "_hertz": {"hertz"}}
"""Units of what a panel shows as it is, by the ending of the metric's name."""


def _queries(dashboard: Dashboard) -> Iterator[tuple[str, str, list[Selector]]]:
    """Place, text with variables, and selectors of every query."""
    values = chosen(dashboard, span=3600, scrape=15)
    for query in asked(dashboard["title"], dashboard):
        yield query.panel, query.text, selectors(put_in(query.text, values))


def template_datasource(dashboard: Dashboard) -> Iterator[Complaint]:
    """There is one data source, a variable of type prometheus with the usual label."""
    first = dashboard["templating"]["list"][0]
    told = (first["name"], first["type"], first["query"], first["label"])
    if told != ("datasource", "datasource", "prometheus", "Data source"):
        yield "datasource", f"is {told}"


def _target_variable(name: str, label: str) -> Callable[[Dashboard], Iterator[Complaint]]:
    def rule(dashboard: Dashboard) -> Iterator[Complaint]:
        variable = variables(dashboard).get(name)
        if variable is None:
            yield name, "is missing"
            return
        told = {key: variable.get(key) for key in ("type", "label", "multi", "includeAll")}
        wanted = {"type": "query", "label": label, "multi": True, "includeAll": True}
        for key, value in wanted.items():
            if told[key] != value:
                yield name, f"{key} is {told[key]!r}"
        if variable.get("allValue") != ".+":
            yield name, f"allValue is {variable.get('allValue')!r}"

    return rule


def template_label_promql(dashboard: Dashboard) -> Iterator[Complaint]:
    """The series that a variable's values come from is PromQL."""
    values = chosen(dashboard, span=3600, scrape=15)
    for name, variable in variables(dashboard).items():
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
            if found is None or len(selectors(put_in(found[1], values))) != 1:
                yield name, variable["query"]


def template_on_time_change_reload(dashboard: Dashboard) -> Iterator[Complaint]:
    """Values of variables are asked for anew when the time changes."""
    for name, variable in variables(dashboard).items():
        if variable["type"] == "query" and variable["refresh"] != 2:
            yield name, f"refresh is {variable['refresh']}"


def panel_datasource(dashboard: Dashboard) -> Iterator[Complaint]:
    """Panels and their queries ask the data source of the variable."""
    for panel in panels(dashboard):
        for part in (panel, *panel["targets"]):
            if part["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield panel["title"], f"asks {part['datasource']}"


def panel_title_description(dashboard: Dashboard) -> Iterator[Complaint]:
    """Every panel has a title, and a description that is a sentence."""
    for panel in panels(dashboard):
        if not panel["title"] or not re.search(r"[.]$", panel.get("description", "")):
            yield panel["title"], "lacks a description"


def panel_units(dashboard: Dashboard) -> Iterator[Complaint]:
    """Every panel, and every column of a table, has a unit that Grafana knows."""
    for panel in panels(dashboard):
        units = [panel["fieldConfig"]["defaults"].get("unit")]
        for override in panel["fieldConfig"]["overrides"]:
            units += [o["value"] for o in override["properties"] if o["id"] == "unit"]
        for unit in units:
            if unit not in UNITS:
                yield panel["title"], f"unit is {unit}"


def panel_no_targets(dashboard: Dashboard) -> Iterator[Complaint]:
    """Every panel asks something."""
    for panel in panels(dashboard):
        if not panel["targets"]:
            yield panel["title"], "asks nothing"


def target_legend(dashboard: Dashboard) -> Iterator[Complaint]:
    """Every query names its series."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            if target["legendFormat"] in ("", "__auto"):
                yield panel["title"], "has no legend"


def target_rate_interval(dashboard: Dashboard) -> Iterator[Complaint]:
    """Rates are over `$__rate_interval`, so that they suit any zoom and scrape interval."""
    for place, text, _ in _queries(dashboard):
        for function, interval in re.findall(r"\b(rate|irate|increase)\([^\[]*\[([^\]]+)\]", text):
            wanted = (
                {"$__rate_interval", "$__range"} if function == "increase" else {"$__rate_interval"}
            )
            if interval not in wanted:
                yield place, f"{function} over {interval}"


def _target_matcher(label: str) -> Callable[[Dashboard], Iterator[Complaint]]:
    def rule(dashboard: Dashboard) -> Iterator[Complaint]:
        values = chosen(dashboard, span=3600, scrape=15)
        wanted = Matcher(label, "=~", values[label])
        for place, _, found in _queries(dashboard):
            for selector in found:
                if wanted not in selector.matchers:
                    yield place, f"{selector.metric} lacks {label}"

    return rule


def target_counter_agg(dashboard: Dashboard) -> Iterator[Complaint]:
    """A counter is only asked for its rate or increase; what isn't a counter never is."""
    for place, _, found in _queries(dashboard):
        for selector in found:
            nearest = selector.within[0] if selector.within else ""
            counter = selector.metric.endswith("_total")
            if counter != (nearest in _RATES):
                yield place, f"{selector.metric} in {nearest or 'no function'}"
            if counter and nearest in _OF_GAUGES:
                yield place, f"{nearest} of the counter {selector.metric}"


def unit_fits_metric(dashboard: Dashboard) -> Iterator[Complaint]:
    """What is shown as it is has the unit that its name says."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            plain = re.fullmatch(r"(?:max by \([^)]*\) \()?(\w+)\{[^{}]*\}\)?", target["expr"])
            for suffix, units in _BY_SUFFIX.items():
                unit = panel["fieldConfig"]["defaults"]["unit"]
                if plain and plain[1].endswith(suffix) and unit not in units:
                    yield panel["title"], f"{plain[1]} in {unit}"


def uneditable_dashboard(dashboard: Dashboard) -> Iterator[Complaint]:
    """It isn't edited in Grafana, where the next import would undo that."""
    if dashboard["editable"]:
        yield dashboard["title"], "is editable"


RULES: Mapping[str, Callable[[Dashboard], Iterator[Complaint]]] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": _target_variable("job", "Job"),
    "template-instance-rule": _target_variable("instance", "Instance"),
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-legend": target_legend,
    "target-rate-interval-rule": target_rate_interval,
    "target-cluster": _target_matcher("cluster"),
    "target-job-rule": _target_matcher("job"),
    "target-instance-rule": _target_matcher("instance"),
    "target-counter-agg-rule": target_counter_agg,
    "unit-fits-metric": unit_fits_metric,
    "uneditable-dashboard": uneditable_dashboard,
}
"""dashboard-linter's under its own names; target-promql-rule is test_contract's first test."""
