"""One record per request on 1, 16, 64 and 256 connections, with one request in flight on each; and fetches at the tail.

At the tail, all consumers (one per connection) have a waiting fetch, and every record goes to all of them.

With one connection, broker and client are pinned to one core each: with free placement, chance decides whether each
waits for the other's core to wake up, and the same broker reaches between a third and all of its rate.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from perf import frames, shares
from perf.brokers import Broker
from perf.closed_loop import closed_loop
from perf.cpu import pinned, used
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.raw_client import TIMEOUT, RawClient, Refused
from perf.stats import percentile

CONNECTIONS = (1, 16, 64, 256)
SIZE = 100
SHARES = {"p50": (0.5, None), "p99": (0.99, Goal(0.3)), "p99.9": (0.999, None)}
TOPIC, TAIL, LIBRDKAFKA = "small", "tail", "small-librdkafka"


def _rows_of(kind: str, what: str, count: int) -> list[Row]:
    who = f"{what}, connections: {count}" + (", pinned" if count == 1 else "")
    key = f"small.{kind}.{count}"
    return [
        Row(f"{key}.rate", who, "/s", "higher", client=f"{key}.busiest"),
        Row(f"{key}.cpu", f"broker CPU per 100,000, {who}", "s", "lower", Goal(0.3), digits=2),
        *(Row(f"{key}.{share}", f"{share}, {who}", "ms", "lower", goal, 3) for share, (_, goal) in SHARES.items()),
        shares.busiest(key, who),
    ]


class SmallRequests(Measurement):
    name = "small_requests"
    kafka_4 = True
    about = f"one record of {SIZE} B per request or fetch, 1 to 256 connections, one in flight each; and librdkafka"
    quick = False
    rows = (
        *(row for count in CONNECTIONS for row in _rows_of("produce", "one record per request", count)),
        *(row for count in CONNECTIONS for row in _rows_of("tail", "records to waiting fetches", count)),
        Row(
            "small.librdkafka.rate",
            "one record per request, librdkafka, linger 0",
            "/s",
            "higher",
            Goal(3.0),
            client="small.librdkafka.busiest",
        ),
        Row("small.librdkafka.cpu", "broker CPU per 100,000, librdkafka, linger 0", "s", "lower", Goal(0.3), digits=2),
        *shares.rows("small.librdkafka", "one record per request, librdkafka, linger 0"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker:
            with RawClient(broker.port) as client:
                for topic in (TOPIC, TAIL, LIBRDKAFKA):
                    client.create_topic(topic)
            for count in CONNECTIONS:
                with _placed(broker, count):
                    found |= _produce(bench, broker, count)
                    found |= _tail(bench, broker, count)
            found |= _librdkafka(bench, broker)
        return found


def _placed(broker: Broker, connections: int) -> AbstractContextManager[None]:
    cores = sorted(os.sched_getaffinity(0))
    return pinned(broker.pid, cores[:1], cores[-1:]) if connections == 1 else nullcontext()


def _produce(bench: Bench, broker: Broker, connections: int) -> Figures:
    frame = frames.produce(TOPIC, frames.batch(frames.plain_values(SIZE, 1)), 1)
    many = [frame] * connections
    requests = max(4 * connections, bench.scale.acks)
    with ExitStack() as ending:
        clients = [ending.enter_context(RawClient(broker.port)) for _ in range(connections)]
        closed_loop(clients, many, max(connections, requests // 4))
        with used(broker.pid) as usage:
            replies = [client.produce_once(frame) for client in clients]
            with shares.this_thread() as thread:
                seconds, latencies = closed_loop(clients, many, requests, replies)
    return _figures("produce", connections, requests, seconds, usage.cpu, thread.percent, latencies)


def _tail(bench: Bench, broker: Broker, connections: int) -> Figures:
    frame = frames.produce(TAIL, frames.batch(frames.plain_values(SIZE, 1)), 1)
    rounds = max(20, bench.scale.acks // connections)
    with ExitStack() as ending:
        producer = ending.enter_context(RawClient(broker.port))
        consumers = [ending.enter_context(RawClient(broker.port)) for _ in range(connections)]
        fetch = frames.FetchFrame(TAIL)
        _deliver(producer, frame, consumers, fetch, max(5, rounds // 4))
        with used(broker.pid) as usage, shares.this_thread() as thread:
            seconds, latencies = _deliver(producer, frame, consumers, fetch, rounds)
    return _figures("tail", connections, rounds * connections, seconds, usage.cpu, thread.percent, latencies)


def _deliver(
    producer: RawClient, frame: bytes, consumers: Sequence[RawClient], fetch: frames.FetchFrame, rounds: int
) -> tuple[float, list[float]]:
    """In each round, produce a record when all consumers wait for it. Return the seconds, and the times from the call
    that sends a record until each consumer has it."""
    answer = fetch.head + len(frames.batch(frames.plain_values(SIZE, 1)))
    acknowledgement = producer.produce_once(frame)
    offset = producer.end_offset(TAIL)
    latencies: list[float] = []
    buffer = memoryview(bytearray(4096))
    poller = select.epoll()
    by_fd = {client.socket.fileno(): client.socket for client in consumers}
    try:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        began = time.perf_counter()
        for _ in range(rounds):
            asked = bytes(fetch.at(offset))
            for socket in by_fd.values():
                socket.sendall(asked)
            missing = dict.fromkeys(by_fd, answer)
            sent_at = time.perf_counter()
            producer.socket.sendall(frame)
            producer.discard(acknowledgement)
            while missing:
                ready = poller.poll(TIMEOUT)
                if not ready:
                    raise Refused(f"a fetch at the tail had no response after {TIMEOUT:.0f} s")
                for fd, _ in ready:
                    got = by_fd[fd].recv_into(buffer)
                    if not got:
                        raise ConnectionError("the broker closed the connection of a consumer at the tail")
                    missing[fd] -= got
                    if not missing[fd]:
                        del missing[fd]
                        latencies.append(time.perf_counter() - sent_at)
            offset += 1
        return time.perf_counter() - began, latencies
    finally:
        poller.close()


def _librdkafka(bench: Bench, broker: Broker) -> Figures:
    """Measure librdkafka: one connection, one record per request, its own number of requests in flight."""
    from confluent_kafka import Producer

    count = bench.scale.requests // 4
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1, "acks": 1}
    producer = Producer(settings)
    messages = [{"value": value} for value in frames.plain_values(SIZE, 100)]

    def send(wanted: int) -> None:
        for _ in range(wanted // len(messages)):
            while len(producer) > 50_000:
                producer.poll(0.001)
            producer.produce_batch(LIBRDKAFKA, messages, partition=0)
        producer.flush()

    send(count // 4)
    first = shares.look(os.getpid(), broker.pid)
    with used(broker.pid) as usage:
        send(count)
    used_by = shares.shares("small.librdkafka", first, shares.look(os.getpid(), broker.pid))
    sent = count // len(messages) * len(messages)
    return used_by | {
        "small.librdkafka.rate": sent / usage.wall,
        "small.librdkafka.cpu": usage.cpu * 100_000 / max(1, sent),
    }


def _figures(
    kind: str, connections: int, count: int, seconds: float, cpu: float, busiest: float, latencies: list[float]
) -> Figures:
    latencies.sort()
    key = f"small.{kind}.{connections}"
    found = {f"{key}.{share}": percentile(latencies, part) * 1e3 for share, (part, _) in SHARES.items()}
    return found | {
        f"{key}.rate": count / seconds,
        f"{key}.cpu": cpu * 100_000 / count,
        f"{key}.busiest": busiest,
    }
