"""`make screenshots`: every dashboard with the recorded fleet, to docs/images/dashboard-NAME.png.

Needs a Chromium on the path, as Debian's package `chromium` brings it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.dashboards.draw import WIDTH, page
from tests.dashboards.grafana import chosen, dashboards
from tests.dashboards.recording import STEP
from tests.dashboards.site import SPAN, TRAINING, recorded

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHOWN = {
    "node": {"instance": TRAINING.instance},
    "gpu": {"instance": TRAINING.instance, "gpu": "2"},
    "interconnect": {"instance": TRAINING.instance},
}
"""What is chosen on dashboards that are about one node."""


def main() -> None:
    """Draw the dashboards whose names are given, or all."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("make screenshots: there is no chromium on the path (Debian: chromium)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with recorded(folder) as prometheus:
            for stem, dashboard in dashboards().items():
                if sys.argv[1:] and stem not in sys.argv[1:]:
                    continue
                values = chosen(dashboard, SPAN, STEP, **SHOWN.get(stem, {}))
                html, height = page(dashboard, prometheus, values)
                source = folder / f"{stem}.html"
                source.write_text(html)
                _photograph(chromium, source, IMAGES / f"dashboard-{stem}.png", height)


def _photograph(chromium: str, source: Path, image: Path, height: int) -> None:
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--force-device-scale-factor=0.8"]  # keeps each picture below 200 KB
    command += [f"--user-data-dir={source.parent / 'chromium'}", f"--screenshot={image}"]
    command += [f"--window-size={WIDTH},{height}", source.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
