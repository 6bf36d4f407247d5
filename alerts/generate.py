"""Writes all files that are made from the registry: `make alerts`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from alerts import alertmanager, pages
from alerts.model import NODE, Alert, RecordingGroup, Settings
from alerts.registry import DOMAINS, RECORDINGS
from dashboards.model import panel_id

HERE = Path(__file__).resolve().parent
THRESHOLDS = HERE / "thresholds.yaml"
NOTICE = "# Made by `make alerts`; do not edit. Thresholds: alerts/thresholds.yaml.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and never folds one."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: object) -> str:
    return NOTICE + yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True
    )


def alert_rule(alert: Alert, domain: str, settings: Settings) -> dict[str, Any]:
    """One alert as Prometheus has it."""
    expr = alert.expr
    if alert.scope != "fleet":
        expr = f"(\n{_indented(expr)}\n)\nunless on ({NODE}) instance:amdgpu_maintenance:active"
    rule: dict[str, Any] = {"alert": alert.name, "expr": settings.fill(alert.name, expr)}
    wait = settings.duration(alert.name, "for")
    if wait is not None:
        rule["for"] = wait
    if alert.keep is not None:
        rule["keep_firing_for"] = settings.duration(alert.name, alert.keep)
    rule["labels"] = {"severity": alert.severity, "domain": domain}
    rule["annotations"] = {
        "summary": settings.fill(alert.name, alert.summary),
        "description": settings.fill(alert.name, alert.description),
        "runbook_url": settings.fill(alert.name, f"@runbooks/{alert.name}.md"),
        "dashboard_url": settings.fill(alert.name, f"@dashboards/d/{_place(alert)}"),
    }
    return rule


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _place(alert: Alert) -> str:
    """The panel of an alert, opened at what the alert is about."""
    dashboard, panel = alert.panel
    variables = []
    if alert.scope != "fleet":
        variables.append("var-instance={{ $labels.instance | urlquery }}")
    if alert.scope == "gpu":
        variables.append("var-gpu={{ $labels.gpu }}")
    return f"{dashboard}?" + "&".join([*variables, f"viewPanel={panel_id(panel)}"])


def recording_group(group: RecordingGroup, settings: Settings) -> dict[str, Any]:
    """One group of recording rules as Prometheus has it."""
    document: dict[str, Any] = {"name": f"amdgpu-{group.name}"}
    if group.interval is not None:
        document["interval"] = settings.duration("recording", group.interval)
    document["rules"] = [
        {"record": rule.record, "expr": settings.fill("recording", rule.expr)}
        for rule in group.rules
    ]
    return document


def groups(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The groups of rules, by the name of their file."""
    found = {"recording": [recording_group(group, settings) for group in RECORDINGS]}
    for domain in DOMAINS:
        rules = [alert_rule(alert, domain.name, settings) for alert in domain.alerts]
        found[domain.name] = [{"name": f"amdgpu-{domain.name}", "rules": rules}]
    return found


def _operator(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "amdgpu-exporter",
            "labels": {"app.kubernetes.io/name": "amdgpu-exporter"},
        },
        "spec": {"groups": [group for several in found.values() for group in several]},
    }


def files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every file: its path from the repository's root, and its text."""
    found = groups(settings)
    for name, several in found.items():
        yield f"alerts/rules/{name}.yaml", _yaml({"groups": several})
    yield "alerts/prometheusrule.yaml", _yaml(_operator(found))
    yield "alerts/alertmanager.example.yml", alertmanager.text()
    yield from pages.files(settings)


def main(arguments: list[str] | None = None) -> None:
    """Write the files below a folder."""
    parser = argparse.ArgumentParser(prog="python -m alerts.generate", description=__doc__)
    parser.add_argument("--thresholds", type=Path, default=THRESHOLDS, help="settings to use")
    parser.add_argument("--output", type=Path, default=HERE.parent, help="folder to write below")
    parser.add_argument(
        "--divisor", type=int, default=1, help="divide every duration, for tests in faster time"
    )
    given = parser.parse_args(arguments)
    settings = Settings.read(given.thresholds.read_text(), given.divisor)
    for name, text in files(settings):
        path = given.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
