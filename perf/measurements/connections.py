"""A broker with more and more connections: the cost of an idle one, and how fast they are accepted."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack
from typing import NamedTuple

from kafkapy.protocol.apis import API_VERSIONS
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.curves import slope
from perf.many import own_memory
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import TIMEOUT

KIB, MIB = 1 << 10, 1 << 20
SETTINGS = {"socket.listen.backlog.size": "5000"}

ACCEPT = ("connections.accept", "connections accepted", "/s", "connections")
CPU = ("connections.cpu", "accepting, first request and closing, broker CPU", "us", "connections")
MEMORY = ("connections.memory", "anonymous memory, all idle", "MiB", "connections")


class Connections(Measurement):
    name = "connections"
    kafka_4 = True
    quick = False  # the many sizes take too long
    about = "1 to 5,000 connections that are idle after one request: memory, rate of accepting, CPU"
    rows = (
        Row("connections.memory", "memory of an idle connection", "KiB", "lower", Goal(16, None), digits=1),
        Row("connections.accept", "connections accepted and served once", "/s", "higher", client="connections.busiest"),
        Row("connections.busiest", "the same: the client's busiest thread", "% of a core", "lower"),
        Row("connections.cpu", "accepting, first request and closing, CPU", "us", "lower"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        memory: dict[int, float] = {}
        try:
            with bench.broker(kind, SETTINGS) as broker:
                _connect(broker, 50)  # so that objects that are created only once exist
                memory[0] = own_memory(broker.pid)
                for size in bench.scale.sizes(max(bench.scale.most // 2, 2)):
                    opened = _connect(broker, size)
                    memory[size] = opened.memory
                    bench.point(ACCEPT, kind, size, opened.rate)
                    bench.point(CPU, kind, size, opened.cpu * 1e6)
                    bench.point(MEMORY, kind, size, memory[size] / MIB)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return {
            "connections.memory": slope(memory.items()) / KIB,
            "connections.accept": opened.rate,
            "connections.busiest": 100 * opened.client,
            "connections.cpu": opened.cpu * 1e6,
        }


class Opened(NamedTuple):
    """Connections per second, the broker's CPU seconds of each, its memory while all are open, and the share of a core
    that the client used to open them."""

    rate: float
    cpu: float
    memory: int
    client: float


def _connect(broker: Broker, count: int) -> Opened:
    """Open connections, send a request on each, and close them.

    Each connection is half-closed and read to its end, which comes when the broker has closed it. The broker's own
    connections, such as that of Apache Kafka's controller to its broker just after the start, do not matter.
    """
    request = request_frame(API_VERSIONS, 0, 1, frames.CLIENT, API_VERSIONS.Request())
    with used(broker.pid) as usage, ExitStack() as ending:
        began, used_before = time.perf_counter(), time.thread_time()
        sockets = [ending.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(count)]
        for one in sockets:
            one.sendall(request)
        for one in sockets:
            size = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
            one.recv(size, socket.MSG_WAITALL)
        seconds, client = time.perf_counter() - began, time.thread_time() - used_before
        memory = own_memory(broker.pid)
        for one in sockets:
            one.shutdown(socket.SHUT_WR)
        for one in sockets:
            one.settimeout(TIMEOUT)
            if one.recv(1):
                raise RuntimeError("the broker sent more than one response")
    return Opened(count / seconds, usage.cpu / count, memory, client / seconds)
