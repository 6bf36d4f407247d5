"""Alerts, recording rules and runbooks: one registry, from which `make alerts` writes all files.

- `thresholds.yaml`: every threshold and duration, the one place to change them;
- `domains/`: the alerts, one file per domain, each with its runbook;
- `recording.py`: what alerts and dashboards share;
- `registry.py`: all of them;
- `generate.py`: writes `rules/`, `prometheusrule.yaml`, `alertmanager.example.yml`,
  `../docs/alerts.md` and `../docs/runbooks/`.

It is a tool of the build: the daemon does not import it.
"""
