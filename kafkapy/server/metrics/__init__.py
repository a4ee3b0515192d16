"""The broker's metrics and their page for Prometheus."""
