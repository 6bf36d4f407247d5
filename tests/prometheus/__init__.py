"""A real Prometheus scrapes the daemon, which reads AMD's real libraries."""
