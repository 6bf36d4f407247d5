"""The dashboards' contract with what the exporter serves, checked in a real Prometheus."""
