"""The example for Alertmanager; its inhibitions come from the registry."""

from __future__ import annotations

from collections import defaultdict

from alerts.registry import ALERTS, causes

_HEAD = """\
# Made by `make alerts`: an example to copy. Put your own receivers in; keep the inhibitions.

route:
  receiver: warnings
  # One message per node and cluster, not one per GPU and link.
  group_by: [cluster, instance]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 12h
  routes:
    # Always fires: to a dead man's switch outside, which calls when it stops.
    - matchers: [alertname = AmdGpuWatchdog]
      receiver: watchdog
      group_wait: 0s
      group_interval: 1m
      repeat_interval: 5m
    - matchers: [severity = critical]
      receiver: pages
      repeat_interval: 1h
    - matchers: [severity = warning]
      receiver: warnings
    # Shown in Alertmanager and on dashboards, and sent to nobody.
    - matchers: [severity = info]
      receiver: nobody

receivers:
  - name: pages
    webhook_configs:
      - url: http://127.0.0.1:9099/pages
  - name: warnings
    webhook_configs:
      - url: http://127.0.0.1:9099/warnings
  - name: watchdog
    webhook_configs:
      - url: http://127.0.0.1:9099/watchdog
  - name: nobody

# A cause silences its consequences, on the same GPU or node.
inhibit_rules:
"""
_EQUAL = {
    "gpu": "[cluster, instance, gpu]",
    "node": "[cluster, instance]",
    "fleet": "[cluster]",
}
_WIDTH = {"gpu": 0, "node": 1, "fleet": 2}


def text() -> str:
    """The file."""
    consequences: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for alert in ALERTS.values():
        for cause in causes(alert):
            widest = max(alert.scope, ALERTS[cause].scope, key=_WIDTH.__getitem__)
            consequences[cause, widest].append(alert.name)
    lines = []
    for (cause, scope), names in consequences.items():
        lines += [
            f"  - source_matchers: [alertname = {cause}]",
            f'    target_matchers: [alertname =~ "{"|".join(names)}"]',
            f"    equal: {_EQUAL[scope]}",
        ]
    return _HEAD + "\n".join(lines) + "\n"
