"""Alerts, recording rules and runbooks: proven with promtool, and against the exporter's pages."""
