"""The metrics of requests: counts of requests, errors and bytes, and the times of requests. With metrics off, only
integers are incremented."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from kafkapy.errors import name_of
from kafkapy.network.replies import Pending, Reply, Timed
from kafkapy.protocol.message import Message
from kafkapy.runtime.counters import Counter, Histogram, Labels, Metric, Registry, metric_table
from kafkapy.server.metrics.error_codes import error_codes
from kafkapy.server.metrics.slow_requests import SlowRequests

_REQUESTS, _TOPICS = "kafka.network:type=RequestMetrics", "kafka.server:type=BrokerTopicMetrics"

METRICS = metric_table(
    Metric("requests", "counter", ("api",), "Requests that were handled.", f"{_REQUESTS},name=RequestsPerSec"),
    Metric("errors", "counter", ("api", "error"), "Error codes in responses; those of a response's parts count too.",
           f"{_REQUESTS},name=ErrorsPerSec"),
    Metric("request_seconds", "histogram", ("api", "stage"),
           "Time of requests: `queue` until the handler is called, `local` in the handler, `delayed` in a purgatory or "
           "on a pool, `send` until the socket has taken the response.",
           f"{_REQUESTS},name=RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseSendTimeMs"),
    Metric("topic_bytes_in", "counter", ("topic",), "Bytes of record batches that were produced to a topic.",
           f"{_TOPICS},name=BytesInPerSec"),
    Metric("topic_bytes_out", "counter", ("topic",), "Bytes of record batches that were fetched from a topic.",
           f"{_TOPICS},name=BytesOutPerSec"),
)  # fmt: skip


class RequestMeters:
    """Counts requests and errors by API and record bytes by topic, and measures the times of requests if `timed` is
    True.

    A request's time has four stages: queue (before the handler is called), local (in the handler), delayed (in a
    purgatory or on a pool) and send (until the socket has taken the response).

    The dispatcher reports to `slow` how long requests have taken; None if no request counts as slow.
    """

    def __init__(self, registry: Registry, *, timed: bool, slow: SlowRequests | None = None) -> None:
        self._registry = registry
        self.timed = timed
        self.slow = slow
        # float() returns 0.0 at little cost
        self.clock: Callable[[], float] = slow.clock if slow is not None else time.monotonic if timed else float
        self.requests: dict[str, int] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.topic_bytes_in: dict[str, int] = {}
        self.topic_bytes_out: dict[str, int] = {}
        self.replication_bytes_out = Counter()
        self._histograms: dict[tuple[str, str], Histogram] = {}
        # An increment of a dict value is a read and a write: without a lock, two threads could lose an increment.
        self._lock = threading.Lock()
        registry.register_reader([metric for name, metric in METRICS.items() if name != "request_seconds"], self._read)

    def bytes_in(self, topic: str, size: int) -> None:
        """Count `size` bytes of records that were produced to a topic."""
        with self._lock:
            self.topic_bytes_in[topic] = self.topic_bytes_in.get(topic, 0) + size

    def bytes_out(self, topic: str, size: int) -> None:
        """Count `size` bytes of records that were fetched from a topic."""
        with self._lock:
            self.topic_bytes_out[topic] = self.topic_bytes_out.get(topic, 0) + size

    def forget(self, topic: str) -> None:
        """Remove the byte counters of a deleted topic."""
        with self._lock:
            self.topic_bytes_in.pop(topic, None)
            self.topic_bytes_out.pop(topic, None)

    def error(self, api: str, code: int) -> None:
        """Count one error code in a response of the API."""
        key = (api, name_of(code))
        with self._lock:
            self.errors[key] = self.errors.get(key, 0) + 1

    def answered(self, api: str, message: Message) -> None:
        """Count the error codes in a response message of the API. Nothing is done if metrics are off, because finding
        the codes takes a walk through the message."""
        if self.timed:
            for code in error_codes(message):
                self.error(api, code)

    def handled(self, api: str, count: int, gathered: float, started: float, reply: Reply) -> Reply:
        """Count `count` requests of the API, which `reply` answers. If metrics are on, observe their times too. Return
        the reply, wrapped for timing if metrics are on."""
        self.count(api, count)
        return self.time(api, count, gathered, started, reply) if self.timed else reply

    def count(self, api: str, count: int) -> None:
        """Count `count` requests of the API."""
        with self._lock:
            self.requests[api] = self.requests.get(api, 0) + count

    def time(self, api: str, count: int, gathered: float, started: float, reply: Reply) -> Reply:
        """Observe the queue time and the local time of `count` requests of the API. Return their reply, wrapped so that
        the delayed time and the send time are observed later. Call this only if `timed` is True."""
        now = self.clock()
        self._observe(api, "queue", started - gathered, count)
        self._observe(api, "local", now - started, count)
        if isinstance(reply, Pending):
            reply.on_complete = lambda: self._observe(api, "delayed", self.clock() - now, count)
            reply.timed = lambda answer: self._send_timed(api, count, self.clock(), answer)
            return reply
        return self._send_timed(api, count, now, reply)

    def _send_timed(self, api: str, count: int, since: float, reply: Reply) -> Reply:
        if not isinstance(reply, list):
            return reply
        return Timed(reply, lambda: self._observe(api, "send", self.clock() - since, count))

    def _observe(self, api: str, stage: str, seconds: float, count: int) -> None:
        histogram = self._histograms.get((api, stage))
        if histogram is None:
            with self._lock:
                histogram = self._histograms.get((api, stage))
                if histogram is None:
                    histogram = self._registry.register(METRICS["request_seconds"], Histogram(), api, stage)
                    self._histograms[(api, stage)] = histogram
        histogram.observe(seconds, count)

    def _read(self) -> Iterator[tuple[Metric, Labels, float]]:
        for api, count in list(self.requests.items()):
            yield METRICS["requests"], (api,), count
        for key, count in list(self.errors.items()):
            yield METRICS["errors"], key, count
        for direction, sizes in (("in", self.topic_bytes_in), ("out", self.topic_bytes_out)):
            for topic, size in list(sizes.items()):
                yield METRICS[f"topic_bytes_{direction}"], (topic,), size
