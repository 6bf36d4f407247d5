"""The checked-in JSON as Grafana would take it: panels, queries, and variables put in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON = Path(__file__).parents[2] / "dashboards" / "json"

Values = Mapping[str, str]
"""Variables by name."""


def dashboards() -> dict[str, dict[str, Any]]:
    """All dashboards by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(JSON.glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without the rows that hold them."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(dashboard: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Its variables by name."""
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of one panel."""

    dashboard: str
    panel: str
    letter: str
    text: str

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.letter}"


def asked(name: str, dashboard: Mapping[str, Any]) -> Iterator[Asked]:
    """Every query of a dashboard's panels and annotations."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Asked(name, panel["title"], target["refId"], target["expr"])
    for annotation in dashboard["annotations"].get("list", []):
        yield Asked(name, annotation["name"], "annotation", annotation["expr"])


ALL_QUERIES = [query for name, given in dashboards().items() for query in asked(name, given)]


def chosen(dashboard: Mapping[str, Any], span: float, scrape: float, **given: str) -> Values:
    """The value of every variable: what is given, or all.

    Args:
        span: of the time shown, in seconds.
        scrape: the scrape interval of the data source, in seconds.
    """
    values = {
        "__rate_interval": f"{4 * scrape:.0f}s",
        "__range": f"{span:.0f}s",
        "__range_s": f"{span:.0f}",
    }
    for name, variable in variables(dashboard).items():
        if variable["type"] == "textbox":
            values[name] = given.get(name, variable["query"])
        else:
            values[name] = given.get(name, variable.get("allValue", ".+"))
    return values


def put_in(text: str, values: Values) -> str:
    """A query with its variables put in; the longest names first, as one may begin another."""
    for name in sorted(values, key=len, reverse=True):
        text = text.replace(f"${{{name}}}", values[name]).replace(f"${name}", values[name])
    return text
