"""The pages for people: a runbook per alert, and the list of all."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.model import Alert, Domain, Settings
from alerts.registry import DOMAINS, RECORDINGS, causes

_MADE = "Made by `make alerts`; do not edit."

_INTRODUCTION = f"""\
# Alerts

{_MADE} Alerts and runbooks stand in `alerts/domains/`,
thresholds and durations in `alerts/thresholds.yaml`.

| file | for |
|---|---|
| `alerts/rules/*.yaml` | Prometheus 2.42 or newer (`rule_files`), or any ruler with its syntax |
| `alerts/prometheusrule.yaml` | the Prometheus operator |
| `alerts/alertmanager.example.yml` | Alertmanager: routes, grouping, inhibition |

Load all rule files: alerts use the verdicts of `recording.yaml`. To change a threshold, edit
`alerts/thresholds.yaml` and run `make alerts`; or keep your own copy:

```sh
python -m alerts.generate --thresholds mine.yaml --output folder
```

`critical` pages, `warning` wants a person in working hours, `info` is shown and routed nowhere.
The labels of all alerts are `severity` and `domain`, and those of the series: `instance`, and of a
device `gpu` and `pci_address`. Give every node a lasting `instance` (the node's name, not a pod's
address), and a label `cluster` if several clusters share a Prometheus.

## An alert ends with its fault, not with its data

- A gauge is read through `last_over_time(…[hold])`: its last value counts for `hold` after it
  vanished, and a new one takes its place at once. `keep_firing_for` is short there (`keep`), and
  only bridges a value that flaps around its threshold.
- A counter is read through `increase(…[window])`, which survives resets and gaps. A counter that
  vanished seems to stand still, so these alerts go on for `hold` (`keep_firing_for`).
- What only shows in the absence of a series, or under load, is first a verdict of `recording.yaml`
  with a value for "yes" and one for "no"; the alert holds that.
- Data that vanish have alerts of their own: AmdGpuExporterDown, AmdGpuDown, AmdGpuTelemetryLost,
  AmdGpuSourceDown. They fire before `hold` is over, so one alert takes over from the other; a node
  that was taken away for good does not alarm for ever.

A counter's first value counts for nothing: what happened before Prometheus first saw it is on the
dashboards.

## Maintenance

While a node's last word was `amdgpu_exporter_maintenance 1`, and for the time `maintenance` after
it went silent, the alerts of the node and its GPUs are silent.

## No storms

In Alertmanager's example a cause inhibits its consequences: a lost GPU all other alerts of that
GPU. Messages are grouped by node.

## What is proven

`tests/alerts/`: promtool plays every alert: it fires with these labels and texts, is silent just
below, survives resets and gaps, outlives its data and ends with its fault. A simulated day of
training, of inference and of nothing at all raises nothing. In real time sixty times as fast, a
Prometheus and an Alertmanager bring the alerts of the simulated node's faults, and no others, to a
webhook. `python -m tests.alerts.cost` measures what an evaluation takes.
"""


def _settings(alert: Alert, settings: Settings) -> str:
    own = settings.sections.get(alert.name, {})
    return ", ".join(f"{name} {value}" for name, value in own.items())


def _domain(domain: Domain, settings: Settings) -> Iterator[str]:
    yield f"\n## {domain.title}\n"
    yield "| alert | severity | fires when | settings |\n|---|---|---|---|"
    for alert in domain.alerts:
        link = f"[{alert.name}](runbooks/{alert.name}.md)"
        yield f"| {link} | {alert.severity} | {alert.summary} | {_settings(alert, settings)} |"


def _overview(settings: Settings) -> str:
    lines = [_INTRODUCTION.rstrip("\n")]
    for domain in DOMAINS:
        lines += _domain(domain, settings)
    common = settings.sections["common"]
    lines += ["\n## Common settings\n", "| setting | value |\n|---|---|"]
    lines += [f"| {name} | `{value}` |" for name, value in common.items()]
    lines.append("\n## Recording rules")
    for group in RECORDINGS:
        lines += [f"\n### {group.title}\n", "| series | meaning |\n|---|---|"]
        lines += [f"| `{rule.record}` | {rule.meaning} |" for rule in group.rules]
    return "\n".join(lines) + "\n"


def _runbook(alert: Alert, domain: Domain, settings: Settings) -> str:
    section = settings.sections.get(alert.name, {})
    when = {name: value for name, value in section.items() if name != "for"}
    facts = [f"{alert.severity}", domain.title]
    if "for" in section:
        facts.append(f"for {section['for']}")
    facts += [f"{name} {value}" for name, value in when.items()]
    inhibited = ", ".join(f"[{name}]({name}.md)" for name in dict.fromkeys(causes(alert)))
    parts = [
        f"# {alert.name}",
        _MADE,
        f"{alert.summary}. *{' · '.join(facts)}*",
        f"## Meaning\n\n{alert.runbook.meaning}",
        f"```promql\n{settings.fill(alert.name, alert.expr)}\n```",
        f"## Impact\n\n{alert.runbook.impact}",
        f"## Diagnosis\n\n{alert.runbook.diagnosis}",
        f"## Mitigation\n\n{alert.runbook.mitigation}",
    ]
    dashboard, panel = alert.panel
    end = f"Dashboard: `{dashboard}`, panel *{panel}*."
    if inhibited:
        end += f" Silent while its cause fires: {inhibited}."
    return "\n\n".join([*parts, "## See also\n\n" + end]) + "\n"


def files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Path and text of every page."""
    yield "docs/alerts.md", _overview(settings)
    for domain in DOMAINS:
        for alert in domain.alerts:
            yield f"docs/runbooks/{alert.name}.md", _runbook(alert, domain, settings)
