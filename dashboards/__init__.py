"""Grafana dashboards: written here as typed data, generated into `json/` by `make dashboards`.

A tool of the build: nothing of the daemon imports it, and the daemon needs no Grafana.
"""
