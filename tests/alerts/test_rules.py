"""Every alert in promtool: when it fires, what it says, and when it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.registry import ALERTS
from tests.alerts.cases import CASES, Case
from tests.alerts.story import RULES, promtool, prove

WITHOUT_CASE = {"AmdGpuWatchdog": "it always fires, see test_the_watchdog_always_fires"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert(case: Case, tmp_path: Path) -> None:
    """It fires with these labels and texts; silent below, through resets, gaps and absence."""
    status, output = prove(case, tmp_path)
    assert (0, "SUCCESS") == (status, output.strip().splitlines()[-1].strip()), output


def test_every_alert_has_a_case() -> None:
    """An alert that nobody proves fails here."""
    assert {*ALERTS} == {*(case.alert for case in CASES), *WITHOUT_CASE}


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yaml")), ids=lambda path: path.stem)
def test_promtool_accepts_the_rules(path: Path) -> None:
    """`promtool check rules` finds nothing."""
    status, output = promtool("check", "rules", str(path))
    assert (0, False) == (status, "FAILED" in output), output
