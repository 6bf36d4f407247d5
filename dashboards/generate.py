"""Writes the dashboards' JSON: `python -m dashboards.generate`, or `make dashboards`."""

from __future__ import annotations

from pathlib import Path

from dashboards.build import rendered
from dashboards.registry import DASHBOARDS

JSON = Path(__file__).parent / "json"


def main() -> None:
    """Write all files, and remove those of dashboards that are gone."""
    for path in JSON.glob("*.json"):
        path.unlink()
    for dashboard in DASHBOARDS:
        (JSON / f"{dashboard.name}.json").write_text(rendered(dashboard))


if __name__ == "__main__":
    main()
