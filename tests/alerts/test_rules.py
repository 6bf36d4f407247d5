"""Every alert in promtool: when it fires, what it says, and when it must not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from alerts.registry import ALERTS
from tests.alerts.cases import CASES, Case
from tests.alerts.story import RULES, Check, Phase, check, input_series, promtool, prove, rules_of

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


def _silenced(alert: str, maintenance: str, folder: Path) -> tuple[int, str]:
    """Run promtool over a case whose node is in maintenance; the alert must never fire."""
    case = next(case for case in CASES if case.alert == alert)
    minutes = case.minutes + 20
    rules, _ = rules_of(alert)
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    story: tuple[tuple[Phase, int], ...] = (("quiet", case.warm), ("fault", minutes))
    series = [input_series(series, story) for series in case.series]
    name = 'amdgpu_exporter_maintenance{instance="node1:10450",job="amdgpu"}'
    series.append({"series": name, "values": maintenance})
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in rules["groups"]],
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [check(alert, Check(0, case.warm + minutes - 1, firing=False))],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(document))
    return promtool("test", "rules", str(folder / "test.yaml"))


@pytest.mark.parametrize("alert", ["AmdGpuDown", "AmdGpuExporterDown", "AmdGpuPcieReplays"])
@pytest.mark.parametrize("maintenance", ["1x300", "1x5 stale"], ids=["goes-on", "last-word"])
def test_maintenance_silences(alert: str, maintenance: str, tmp_path: Path) -> None:
    """Of the node's and its GPUs' alerts none fires, also once the node no longer answers."""
    status, output = _silenced(alert, maintenance, tmp_path)
    assert (0, "SUCCESS") == (status, output.strip().splitlines()[-1].strip()), output


def test_a_node_out_of_maintenance_is_not_silenced(tmp_path: Path) -> None:
    """0 is not 1: the same test, which then fails."""
    status, _ = _silenced("AmdGpuDown", "0x300", tmp_path)
    assert 1 == status


def test_the_watchdog_always_fires(tmp_path: Path) -> None:
    """Without any series."""
    rules, _ = rules_of("AmdGpuWatchdog")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "promql_expr_test": [check("AmdGpuWatchdog", Check(0, 60, firing=True))],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    status, output = promtool("test", "rules", str(tmp_path / "test.yaml"))
    assert (0, "SUCCESS") == (status, output.strip().splitlines()[-1].strip()), output
