"""The HTTP side of the exporter: addresses, the application and its server."""
