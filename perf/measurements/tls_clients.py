"""A thousand clients that connect at once with TLS and SCRAM, beside a producer that was connected before.

The clients are a process of low priority (`perf.tls_load`), so that what they compute themselves delays the producer as
little as possible. The users' salted password is computed before the measurement.
"""

from __future__ import annotations

import functools
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from kafkapy.client.administration.user_admin import UserAdmin
from kafkapy.testing.secured import Secured
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.curves import slope
from perf.many import own_memory
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient
from perf.stats import percentile
from perf.tls import MECHANISM, PASSWORD, USER, TlsClient, client_context, settings
from perf.tls_load import load

KIB = 1 << 10
RATE = 1000
ROUND_S = 0.1
TOPIC = "tls-clients"
SETTINGS = {"socket.listen.backlog.size": "5000"}


@functools.cache
def secured() -> Secured:
    return Secured(tls=True, users={USER: PASSWORD})


class TlsClients(Measurement):
    name = "tls_clients"
    quick = False
    about = "1,000 clients that connect at once with TLS and SCRAM, a producer beside them, memory of idle connections"
    rows = (
        Row("tls-clients.seconds", "1,000 clients connect with TLS and SCRAM: all served", "s", "lower", Goal(1.0), 2),
        Row("tls-clients.cpu", "CPU of the broker for each of them", "ms", "lower", digits=2),
        Row("tls-clients.idle.p99", "p99 of a producer at 1,000/s before", "ms", "lower", digits=2),
        Row("tls-clients.beside.p99", "p99 of a producer at 1,000/s while they connect", "ms", "lower", digits=2),
        Row("tls-clients.times", "p99 while they connect", "× that before", "lower", Goal(2.0, None), digits=2),
        Row("tls-clients.memory", "memory of an idle connection, TLS and SCRAM", "KiB", "lower", Goal(40, None), 1),
        Row("tls-clients.memory.together", "the same, after all have connected at once", "KiB", "lower", digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        count = min(1000, bench.scale.most)
        with bench.broker(kind, settings(secured(), SETTINGS)) as broker:
            with UserAdmin(broker.bootstrap, security=secured().client_properties()) as admin:
                admin.set_password(USER, PASSWORD, [MECHANISM])
            with TlsClient(broker.port, client_context(secured()), logs_in=True) as producer:
                producer.create_topic(TOPIC)
                frame = frames.produce(TOPIC, frames.batch(frames.plain_values(100, 1)), 1)
                producer.stream(frame, bench.scale.requests // 4 // 10 * 10, 100, 10)
                _connect(bench, broker, min(50, count))  # so that objects that are created only once exist
                memory = _idle_memory(broker, count)
                found = _connect(bench, broker, count)
                idle = _p99(producer, frame, bench.scale.paced_seconds / 2)
                beside = _p99_beside(bench, broker, count, producer, frame)
        return {
            **found,
            "tls-clients.memory": memory,
            "tls-clients.idle.p99": idle,
            "tls-clients.beside.p99": beside,
            "tls-clients.times": beside / idle,
        }


def _connect(bench: Bench, broker: Broker, count: int) -> Figures:
    """Let `count` clients connect, and measure while they are connected."""
    ca_file = secured().ca_file
    assert ca_file is not None
    before = own_memory(broker.pid)
    with used(broker.pid) as usage, load(broker.port, ca_file, count, bench.directory) as seconds:
        after = own_memory(broker.pid)
    return {
        "tls-clients.seconds": seconds,
        "tls-clients.cpu": usage.cpu * 1e3 / count,
        "tls-clients.memory.together": slope([(0, before), (count, after)]) / KIB,
    }


def _idle_memory(broker: Broker, count: int) -> float:
    """Return the KiB of each connection if clients connect one after the other: without the memory that was needed for
    many handshakes at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = client_context(secured())
    try:
        with ExitStack() as ending:
            before = own_memory(broker.pid)
            for _ in range(count):
                ending.enter_context(TlsClient(broker.port, context, logs_in=True))
            return slope([(0, before), (count, own_memory(broker.pid))]) / KIB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _p99_beside(bench: Bench, broker: Broker, count: int, producer: RawClient, frame: bytes) -> float:
    """Return the producer's p99 in ms while clients connect. It is paced in short rounds until they have connected."""
    reply = producer.produce_once(frame)
    with ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(_connect, bench, broker, count)
        latencies: list[float] = []
        while not connecting.done():
            latencies += producer.pace(frame, reply, RATE, ROUND_S)[0]
        connecting.result()
    return percentile(sorted(latencies), 0.99) * 1e3


def _p99(producer: RawClient, frame: bytes, seconds: float) -> float:
    latencies, _ = producer.paced(frame, RATE, seconds)
    return percentile(sorted(latencies), 0.99) * 1e3
