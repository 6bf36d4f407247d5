"""The alerts, one file per domain."""
