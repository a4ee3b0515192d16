"""Serves metrics over HTTP in Prometheus format. prometheus_client is imported on use: it costs 60 ms and 14 MB."""

from __future__ import annotations

import threading
from typing import Any

from kafkapy.runtime.addresses import host_port
from kafkapy.runtime.threads import show_name, starting


class MetricsPage:
    """An HTTP server for metrics, from construction until `stop`. Raises OSError if it cannot listen, and NoThread.

    Args:
        port: 0 takes a free port; `address` (HOST:PORT) has it.
        collector: its `collect()` is called for each request and yields prometheus_client's metric families.
    """

    def __init__(self, host: str, port: int, collector: Any) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        collectors = CollectorRegistry(auto_describe=False)
        collectors.register(collector)
        with starting("metrics"):
            self._server, self._thread = start_http_server(port, host, registry=collectors)
        self._thread.name = "kafkapy-metrics"
        show_name(self._thread)
        self.address = host_port(host, self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if isinstance(self._thread, threading.Thread):
            self._thread.join()
