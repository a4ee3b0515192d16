"""What the broker counts of its requests. With metrics off only plain integers are added."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafkapy.errors import name_of
from kafkapy.network.replies import Reply, Timed
from kafkapy.protocol.message import Message
from kafkapy.runtime.counters import Histogram, Registry
from kafkapy.server.call import MeteredPending
from kafkapy.server.error_codes import error_codes


def _no_clock() -> float:
    return 0.0


class RequestMeters:
    """Times of requests by API (queue: since the gather began; local: in the handler; delayed: in a purgatory or
    the disk pool; send: until the socket took the answer), and bytes by topic."""

    def __init__(self, registry: Registry, *, timed: bool) -> None:
        self._registry = registry
        self.timed = timed
        self.clock: Callable[[], float] = time.monotonic if timed else _no_clock
        self.requests: dict[str, int] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.topic_bytes_in: dict[str, int] = {}
        self.topic_bytes_out: dict[str, int] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        # Reading and writing back an entry are two steps, and several processors count.
        self._lock = threading.Lock()

    def bytes_in(self, topic: str, size: int) -> None:
        with self._lock:
            self.topic_bytes_in[topic] = self.topic_bytes_in.get(topic, 0) + size

    def bytes_out(self, topic: str, size: int) -> None:
        with self._lock:
            self.topic_bytes_out[topic] = self.topic_bytes_out.get(topic, 0) + size

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        with self._lock:
            self.topic_bytes_in.pop(topic, None)
            self.topic_bytes_out.pop(topic, None)

    def error(self, api: str, code: int) -> None:
        """Counts an error code that was answered."""
        key = (api, name_of(code))
        with self._lock:
            self.errors[key] = self.errors.get(key, 0) + 1

    def answered(self, api: str, message: Message) -> None:
        """Counts the error codes in a response; only where somebody can see them, for it costs a walk."""
        if self.timed:
            for code in error_codes(message):
                self.error(api, code)

    def handled(self, api: str, count: int, gathered: float, started: float, reply: Reply) -> Reply:
        """Counts `count` requests whose handler has returned `reply`; gives it back, with its timers set."""
        self.count(api, count)
        return self.time(api, count, gathered, started, reply) if self.timed else reply

    def count(self, api: str, count: int) -> None:
        with self._lock:
            self.requests[api] = self.requests.get(api, 0) + count

    def time(self, api: str, count: int, gathered: float, started: float, reply: Reply) -> Reply:
        """The reply with its timers set; asked for only where they are `timed`."""
        now = self.clock()
        self._observe(api, "queue", started - gathered, count)
        self._observe(api, "local", now - started, count)
        if isinstance(reply, MeteredPending):
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
            histogram = self._histograms[(api, stage)] = self._registry.histogram(
                "request_seconds", "Time of requests by API and stage", {"api": api, "stage": stage}
            )
        histogram.observe(seconds, count)
