"""What rules and runbooks ask for is what the exporter serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from alerts.generate import THRESHOLDS, groups
from alerts.model import Settings
from alerts.registry import ALERTS, RECORDINGS
from dashboards.model import panel_id
from exporter.collectors import COLLECTORS
from exporter.exposition.families import NODE_METRICS
from tests.alerts.selectors import matches, selectors, served
from tests.alerts.story import PANELS

SETTINGS = Settings.read(THRESHOLDS.read_text())
RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
RECORDED = {rule.record for group in RECORDINGS for rule in group.rules}
BY_PROMETHEUS = {"up"}
REFERENCE = {
    *(metric.name for metric in NODE_METRICS),
    *(metric.name for collector in COLLECTORS for metric in collector.metrics),
    *(metric.name for collector in COLLECTORS for metric in collector.node_metrics),
}
MISSING = {
    "amdgpu_exporter_maintenance": "of the contract; lands with the life of the node",
    'amdgpu_devices{view="expected"}': "only with --expected-gpus",
    "amdgpu_vram_leak_suspected": "a verdict takes hours, a golden page two polls",
    "amdgpu_vram_unattributed_bytes": "a verdict takes hours, a golden page two polls",
    "amdgpu_vram_growth_bytes_per_second": "a verdict takes hours, a golden page two polls",
    "amdgpu_vram_exhaustion_seconds": "a verdict takes hours, a golden page two polls",
    'amdgpu_temperature_limit_celsius{limit="configured_warning",sensor="junction"}': (
        "only where a user configures it; by default there is one for the HBM"
    ),
    "amdgpu_bad_page_threshold": "the driver of the simulated kernel does not tell it",
}
"""Selectors that match nothing on the golden pages, with the reason."""


def _rules() -> Iterator[tuple[str, str]]:
    for several in groups(SETTINGS).values():
        for group in several:
            for rule in group["rules"]:
                yield rule.get("alert") or rule["record"], rule["expr"]


def _queries() -> Iterator[tuple[str, str]]:
    for path in sorted(RUNBOOKS.glob("*.md")):
        for query in re.findall(r"```promql\n(.*?)\n```", path.read_text(), re.DOTALL):
            yield path.stem, query


EXPRESSIONS = (*_rules(), *_queries())


def _unmatched() -> dict[str, str]:
    found = {}
    for where, expression in EXPRESSIONS:
        for selector in selectors(expression):
            name = selector.name or ""
            if name in RECORDED | BY_PROMETHEUS:
                continue
            if not any(matches(selector, labels) for labels in served().get(name, [])):
                text = re.sub(r"\[.*| offset .*", "", selector.prettify())
                found[text] = where
    return found


def test_every_selector_matches_a_series() -> None:
    """On a golden page, or it is listed with its reason; no reason outlives its need."""
    assert {*MISSING} == {*_unmatched()}


def test_every_metric_is_in_the_reference() -> None:
    """Or in the contract for what is still to come."""
    asked = {s.name for _, expression in EXPRESSIONS for s in selectors(expression)}
    assert {"amdgpu_exporter_maintenance"} == asked - REFERENCE - RECORDED - BY_PROMETHEUS


def test_every_alert_leads_to_a_panel() -> None:
    """The panel that `dashboard_url` names is there, under the number that the link has."""
    expected = {alert.panel: panel_id(alert.panel[1]) for alert in ALERTS.values()}
    assert expected == {panel: PANELS.get(panel) for panel in expected}


def test_recorded_series_are_those_that_are_asked_for() -> None:
    """A selector with a colon is a recording rule that exists."""
    asked = {str(s.name) for _, expression in EXPRESSIONS for s in selectors(expression)}
    assert set() == {name for name in asked if ":" in name} - RECORDED
