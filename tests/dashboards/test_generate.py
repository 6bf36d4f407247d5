"""The checked-in JSON is what the code makes, and its parts hang together."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from alerts.model import Alert
from alerts.registry import DOMAINS
from dashboards.model import panel_id
from dashboards.registry import DASHBOARDS
from tests.dashboards.grafana import JSON, dashboards, panels, variables

GIVEN = dashboards()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="grafana-foundation-sdk needs Python 3.11")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_json_is_fresh(dashboard: Any) -> None:
    """JSON that was not generated after a change fails; `make dashboards` mends it."""
    from dashboards.build import rendered

    assert rendered(dashboard) == (JSON / f"{dashboard.name}.json").read_text()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="grafana-foundation-sdk needs Python 3.11")
@pytest.mark.parametrize("name", GIVEN)
def test_json_is_of_grafanas_schema(name: str) -> None:
    """The SDK's types, which are made from Grafana's schema, take it in and give all of it back."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    given = Dashboard.from_json(deepcopy(GIVEN[name]))

    assert GIVEN[name] == json.loads(json.dumps(given, cls=JSONEncoder))


@pytest.mark.parametrize(
    "alert", [alert for domain in DOMAINS for alert in domain.alerts], ids=lambda alert: alert.name
)
def test_alerts_lead_to_panels(alert: Alert) -> None:
    """The dashboard that an alert names exists, with a panel or row of the title that it names."""
    uid, title = alert.panel
    dashboard = next(d for d in DASHBOARDS if d.uid == uid)
    assert title in {p.title for p in dashboard.panels} | {row.title for row in dashboard.rows}


def test_no_json_is_left_over() -> None:
    """Every file belongs to a dashboard of the registry."""
    assert {dashboard.name for dashboard in DASHBOARDS} == {path.stem for path in JSON.iterdir()}


def test_uids_stay() -> None:
    """Alerts, bookmarks and other dashboards link to these."""
    assert {
        "amdgpu-fleet",
        "amdgpu-node",
        "amdgpu-gpu",
        "amdgpu-interconnect",
        "amdgpu-memory",
        "amdgpu-reliability",
        "amdgpu-capacity",
    } == {dashboard["uid"] for dashboard in GIVEN.values()}


@pytest.mark.parametrize("name", GIVEN)
def test_panels_have_their_own_ids_and_titles(name: str) -> None:
    """No id and no title twice; the id is made from the title, so links outlive a new order."""
    listed = GIVEN[name]["panels"]
    assert [] == [key for key, count in Counter(p["id"] for p in listed).items() if count > 1]
    titles = Counter(p["title"] for p in panels(GIVEN[name]))
    assert [] == [title for title, count in titles.items() if count > 1]
    assert [panel_id(p["title"]) for p in panels(GIVEN[name])] == [
        p["id"] for p in panels(GIVEN[name])
    ]


@pytest.mark.parametrize("name", GIVEN)
def test_layout_has_no_holes_and_no_overlaps(name: str) -> None:
    """Every line of panels fills the 24 columns, and no two panels cover the same place."""
    places: Counter[tuple[int, int]] = Counter()
    for panel in GIVEN[name]["panels"]:
        grid = panel["gridPos"]
        places.update(
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        )
    assert {1} == set(places.values())
    lines = {y for _, y in places}
    assert 24 * len(lines) == len(places)


def _urls(panel: dict[str, Any]) -> Iterator[str]:
    for link in panel.get("links", []):
        yield link["url"]
    for link in panel["fieldConfig"]["defaults"].get("links", []):
        yield link["url"]
    for override in panel["fieldConfig"]["overrides"]:
        for option in override["properties"]:
            if option["id"] == "links":
                yield from (link["url"] for link in option["value"])


@pytest.mark.parametrize("name", GIVEN)
def test_links_lead_somewhere(name: str) -> None:
    """Links name a dashboard, a panel and variables that exist there; each dashboard has some."""
    by_uid = {dashboard["uid"]: dashboard for dashboard in GIVEN.values()}
    urls = [url for panel in panels(GIVEN[name]) for url in _urls(panel)]
    assert urls
    for url in urls:
        found = re.match(r"/d/([a-z-]+)\?", url)
        assert found, url
        target = by_uid[found[1]]
        for panel in re.findall(r"viewPanel=(\d+)", url):
            assert int(panel) in {p["id"] for p in panels(target)}, url
        for variable in re.findall(r"var-(\w+)=", url):
            assert variable in variables(target) or variable == "gpu", url
