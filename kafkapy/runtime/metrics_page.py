"""Metrics over HTTP in Prometheus form. The library is imported when a page is made: it costs 60 ms and 14 MB."""

from __future__ import annotations

import threading
from typing import Any

from kafkapy.runtime.addresses import host_port


class MetricsPage:
    """Listens from construction until `stop`. Raises OSError where it cannot.

    Args:
        port: 0 takes a free one; `address` (HOST:PORT) says which.
        collector: has `collect()`, which yields the library's families whenever somebody asks for the page.
    """

    def __init__(self, host: str, port: int, collector: Any) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        collectors = CollectorRegistry(auto_describe=False)
        collectors.register(collector)
        self._server, self._thread = start_http_server(port, host, registry=collectors)
        self.address = host_port(host, self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if isinstance(self._thread, threading.Thread):
            self._thread.join()
