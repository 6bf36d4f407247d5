"""Every query of every panel asks for something that the exporter serves."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from tests.dashboards.grafana import ALL_QUERIES, Asked, chosen, dashboards, put_in
from tests.dashboards.promql import Selector, selectors
from tests.docs.generate import DOCS
from tests.golden.page import PAGES
from tests.naming.contract import CONTRACT

GIVEN = dashboards()
TARGET_LABELS = frozenset({"cluster", "job", "instance"})
"""Prometheus adds them; a page has none."""

_LEAKS = "a verdict takes longer than the two polls of a golden page; test_data shows it"
NOT_ON_GOLDEN_PAGES = {
    "up": "Prometheus makes it for every target",
    'amdgpu_devices{view="expected"}': "golden nodes expect no number; test_data shows it",
    "amdgpu_bad_page_threshold": "no golden page has it; test_data shows it",
    "amdgpu_vram_leak_suspected": _LEAKS,
    "amdgpu_vram_growth_bytes_per_second": _LEAKS,
    "amdgpu_vram_unattributed_bytes": _LEAKS,
    "amdgpu_vram_exhaustion_seconds": _LEAKS,
}
"""Selectors without a series on any golden page, each with its reason."""

_SERIES = re.compile(r"^([a-z0-9_]+)(?:\{(.*)\})? ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def _served() -> dict[str, list[dict[str, str]]]:
    """The labels of all series of the golden pages, by metric."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PAGES.rglob("*.prom")):
        for metric, labels in _SERIES.findall(path.read_text()):
            found[metric].add(labels)
    return {
        metric: [dict(_LABEL.findall(labels)) for labels in listed]
        for metric, listed in found.items()
    }


@pytest.fixture(scope="module")
def served() -> dict[str, list[dict[str, str]]]:
    """The golden pages, read once."""
    return _served()


def _selectors(query: Asked) -> list[Selector]:
    values = chosen(GIVEN[query.dashboard], span=3600, scrape=15)
    return selectors(put_in(query.text, values))


def _shown(selector: Selector) -> str:
    """As the list of exceptions names it."""
    own = [
        f'{m.label}{m.operator}"{m.value}"'
        for m in selector.matchers
        if m.label not in TARGET_LABELS and m.label != "gpu"
    ]
    return f"{selector.metric}{{{', '.join(own)}}}" if own else selector.metric


def test_every_query_is_promql() -> None:
    """It parses once Grafana's variables are put in, and none of these is left."""
    for query in ALL_QUERIES:
        assert _selectors(query), query
        values = chosen(GIVEN[query.dashboard], span=3600, scrape=15)
        left = re.findall(r"\$(?!1\b)\w+", put_in(query.text, values))
        assert [] == left, query


def test_every_selector_matches_a_golden_series(served: dict[str, list[dict[str, str]]]) -> None:
    """All matchers of a selector are met by one series of some golden page, or it is excepted."""
    unmatched = {
        _shown(selector): str(query)
        for query in ALL_QUERIES
        for selector in _selectors(query)
        if not any(
            selector.meets(labels, TARGET_LABELS) for labels in served.get(selector.metric, [])
        )
    }
    assert {} == {k: v for k, v in unmatched.items() if k not in NOT_ON_GOLDEN_PAGES}


def test_exceptions_are_used() -> None:
    """An exception that no query needs is taken out of the list."""
    asked = {_shown(selector) for query in ALL_QUERIES for selector in _selectors(query)}
    assert set() == NOT_ON_GOLDEN_PAGES.keys() - asked


def test_every_metric_is_documented() -> None:
    """Every metric on a dashboard is in the reference or in the contract."""
    reference = set(re.findall(r"^\| `([a-z0-9_]+)`", (DOCS / "metrics.md").read_text(), re.M))
    asked = {selector.metric for query in ALL_QUERIES for selector in _selectors(query)}
    assert set() == asked - reference - CONTRACT.keys() - {"up"}
