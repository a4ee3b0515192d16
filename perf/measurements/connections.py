"""A broker with more and more connections: the cost of an idle one, and how fast they are accepted."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack

from kafkapy.protocol.apis import API_VERSIONS
from kafkapy.protocol.headers import request_frame
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.curves import slope
from perf.many import open_sockets, own_memory, wait_for
from perf.measurement import Bench, Figures, Goal, Measurement, Row

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
        Row("connections.accept", "connections accepted and served once", "/s", "higher"),
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
                    accept, cpu, memory[size] = _connect(broker, size)
                    bench.point(ACCEPT, kind, size, accept)
                    bench.point(CPU, kind, size, cpu * 1e6)
                    bench.point(MEMORY, kind, size, memory[size] / MIB)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return {
            "connections.memory": slope(memory.items()) / KIB,
            "connections.accept": accept,
            "connections.cpu": cpu * 1e6,
        }


def _connect(broker: Broker, count: int) -> tuple[float, float, int]:
    """Open and close connections; return (connections per second, CPU seconds of each, memory while all are open)."""
    request = request_frame(API_VERSIONS, 0, 1, frames.CLIENT, API_VERSIONS.Request())
    with used(broker.pid) as usage:
        with ExitStack() as ending:
            began = time.perf_counter()
            sockets = [ending.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(count)]
            for one in sockets:
                one.sendall(request)
            for one in sockets:
                size = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
                one.recv(size, socket.MSG_WAITALL)
            seconds = time.perf_counter() - began
            memory, open_now = own_memory(broker.pid), open_sockets(broker.pid)
        wait_for(lambda: open_sockets(broker.pid) <= open_now - count, "connections are still open")
    return count / seconds, usage.cpu / count, memory
