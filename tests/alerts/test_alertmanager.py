"""The example for Alertmanager, checked with its own tool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.generate import HERE
from alerts.registry import ALERTS
from tests.kernel.packages import debian_tool

EXAMPLE = HERE / "alertmanager.example.yml"


def amtool(*arguments: str) -> tuple[int, str]:
    """Status and output."""
    done = subprocess.run(
        [str(debian_tool("prometheus-alertmanager") / "usr/bin/amtool"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout.decode()


def test_amtool_accepts_the_example() -> None:
    """`amtool check-config` finds nothing."""
    status, output = amtool("check-config", str(EXAMPLE))
    assert (0, True) == (status, "SUCCESS" in output), output


@pytest.mark.parametrize(
    ("alert", "receiver"),
    [
        ("AmdGpuWatchdog", "watchdog"),
        ("AmdGpuDown", "pages"),
        ("AmdGpuHbmNearLimit", "warnings"),
        ("AmdGpuPowerCapped", "nobody"),
    ],
)
def test_routes(alert: str, receiver: str) -> None:
    """Each severity goes where the page says, the watchdog to its own receiver."""
    severity = ALERTS[alert].severity
    status, output = amtool(
        "config",
        "routes",
        "test",
        f"--config.file={EXAMPLE}",
        f"alertname={alert}",
        f"severity={severity}",
    )
    assert (0, receiver) == (status, output.splitlines()[-1])


def test_a_lost_gpu_silences_all_else_of_that_gpu() -> None:
    """One message, not ten; and only of the same node and GPU."""
    rules = yaml.safe_load(Path(EXAMPLE).read_text())["inhibit_rules"]
    (rule,) = (
        r
        for r in rules
        if r["source_matchers"] == ["alertname = AmdGpuDown"] and "gpu" in r["equal"]
    )
    expected = {a.name for a in ALERTS.values() if a.scope == "gpu"} - {"AmdGpuDown"}
    targets = {*rule["target_matchers"][0].split('"')[1].split("|")}

    assert (expected, ["cluster", "instance", "gpu"]) == (targets, rule["equal"])
