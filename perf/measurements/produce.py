"""Produce throughput and the broker's CPU per GiB with prebuilt requests: the broker is the limit."""

from __future__ import annotations

import socket

from perf import frames, shares
from perf.bare import bare_loop
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import GIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused

WINDOW = 5  # max.in.flight.requests.per.connection of the Java producer
SIZES = {1024: ("1k", "1 KiB", 1.2), 100: ("100b", "100 B", 1.3)}
ACKS = {1: "1", frames.ACKS_ALL: "all"}


def stream(
    broker: Broker, topic: str, size: int, values: list[bytes], records: bytes, acks: int, payload: int
) -> float:
    """Produce about `payload` bytes of values as copies of the batch `records`; return the seconds for `payload`."""
    with RawClient(broker.port) as client:
        frame = frames.produce(topic, records, acks)
        before = client.end_offset(topic)
        count = max(WINDOW, payload // (size * len(values)))
        seconds = client.stream(frame, count, WINDOW)
        expected = before + (count + 1) * len(values)  # one more: the first, which shows the length of a response
        if client.end_offset(topic) != expected:
            raise Refused(f"{topic} ends at {client.end_offset(topic)}, not at {expected}: some produce failed")
    return seconds * payload / (count * size * len(values))


def create_and_warm(bench: Bench, broker: Broker, topic: str, size: int, values: list[bytes], records: bytes) -> None:
    """Create a topic and produce to it until a JVM has compiled the code."""
    with RawClient(broker.port) as client:
        client.create_topic(topic)
    stream(broker, topic, size, values, records, 1, bench.scale.warm)


class Produce(Measurement):
    name = "produce"
    kafka_4 = True
    about = "produce throughput and broker CPU, prebuilt requests of 1 MB, 5 in flight"
    rows = (
        *(
            Row(
                f"produce.{key}.acks{acks}",
                f"produce {label}, acks={acks}, raw client",
                "MB/s",
                "higher",
                Goal(ratio),
                client=f"produce.{key}.acks{acks}.busiest",
            )
            for key, label, ratio in SIZES.values()
            for acks in ACKS.values()
        ),
        *(
            Row(f"produce.{key}.cpu", f"broker CPU per GiB produced, {label}", "s", "lower", Goal(0.4), digits=2)
            for key, label, _ in SIZES.values()
        ),
        *(
            shares.busiest(f"produce.{key}.acks{acks}", f"produce {label}, acks={acks}, raw client")
            for key, label, _ in SIZES.values()
            for acks in ACKS.values()
        ),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        payload = bench.scale.stream
        for size, (key, _, _) in SIZES.items():
            values = frames.plain_values(size, frames.records_that_fill(size))
            records = frames.batch(values)
            with bench.broker(kind) as broker:
                for acks, word in ACKS.items():
                    topic = f"produce-{key}-{word}"
                    create_and_warm(bench, broker, topic, size, values, records)
                    with used(broker.pid) as usage, shares.this_thread() as thread:
                        seconds = stream(broker, topic, size, values, records, acks, payload)
                    found[f"produce.{key}.acks{word}"] = payload / 1e6 / seconds
                    found[f"produce.{key}.acks{word}.busiest"] = thread.percent
                    if acks == 1:
                        found[f"produce.{key}.cpu"] = usage.cpu / (payload / GIB)
        return found

    def limit(self, bench: Bench) -> Figures:
        found: Figures = {}
        for size, (key, _, _) in SIZES.items():
            values = frames.plain_values(size, frames.records_that_fill(size))
            frame = frames.produce("bare", frames.batch(values), 1)
            count = max(WINDOW, bench.scale.stream // (size * len(values)))
            seconds, cpu = receive_and_write(bench, frame, count)
            payload = count * size * len(values)
            found[f"produce.{key}.acks1"] = payload / 1e6 / seconds
            found[f"produce.{key}.cpu"] = cpu / (payload / GIB)
        return found


def receive_and_write(bench: Bench, frame: bytes, count: int) -> tuple[float, float]:
    """Run the bare loop that receives `frame` `count` times and writes it to a file; return wall and CPU seconds."""
    with bench.data() as path, bare_loop("receive", path / "bare") as (pid, port):
        with socket.create_connection(("127.0.0.1", port)) as connection, used(pid) as usage:
            for _ in range(count):
                connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        return usage.wall, usage.cpu
