"""The checked-in JSON is what the code makes, and its parts hang together."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

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
