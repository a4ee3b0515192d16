"""A native topic of Kafka 0.7 beside a modern one, in the same broker, with the same flush settings.

Requests of 1 KiB messages are sent without waiting for responses (acks=0, which 0.7 always has), and are timed up to
the answer that shows the end of the log, so until everything is written and flushed. Fetches get 1 MiB each.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

from kafkapy.record.kafka07 import build_message
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.fetch_load import fetch, of_broker, places_in
from perf.measurement import GIB, KAFKAPY, MIB, Bench, Figures, Goal, Measurement, Row
from perf.processes import free_port
from perf.raw_client import RawClient, Refused

SIZE, MESSAGES = 1024, 200  # batch.size of 0.7's producer
FLUSH_MESSAGES = 500  # log.flush.interval of 0.7
ROUNDS = 4  # in turns, so that both see the same machine
TOPIC = "native"
KINDS = ("native", "modern")
_WHAT = {"produce": "produce 1 KiB, acks=0, flushed every 500 messages", "fetch": "fetch of 1 MiB"}


class Kafka07(Measurement):
    name = "kafka_07"
    about = "a native topic of Kafka 0.7 beside a modern one with the same flush settings: produce and fetch"
    quick = False
    rows = tuple(
        row
        for what, label in _WHAT.items()
        for row in (
            *(Row(f"kafka07.{what}.{kind}", f"{label}, {kind} topic", "MB/s", "higher") for kind in KINDS),
            *(
                Row(f"kafka07.{what}.{kind}.cpu", f"CPU per GiB, {label}, {kind} topic", "s", "lower", digits=3)
                for kind in KINDS
            ),
            Row(f"kafka07.{what}.ratio", f"{label}, native to modern", "x", "higher", Goal(0.9, None), digits=2),
        )
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        if kind != KAFKAPY:
            return {}
        with bench.data() as data:
            port = free_port()
            settings = {"kafkapy.kafka07.properties": str(_properties(data, port)), "num.partitions": "1"}
            with bench.fleet.running(kind, data / "later", settings) as broker:
                found = _produce(bench, broker, port)
                return found | _fetch(bench, broker, port)


def _properties(data: Path, port: int) -> Path:
    file = data / "server-07.properties"
    lines = {"brokerid": 0, "port": port, "log.dir": data / "native", "enable.zookeeper": "false"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return file


def _produce(bench: Bench, broker: Broker, port: int) -> Figures:
    data = build_message(bytes(range(256)) * (SIZE // 256)) * MESSAGES
    native = _request(0, TOPIC) + struct.pack(">i", len(data)) + data
    native = struct.pack(">i", len(native)) + native
    values = [bytes(range(256)) * (SIZE // 256)] * MESSAGES
    modern = frames.produce(TOPIC, frames.batch(values), 0)
    count = max(2, bench.scale.stream // (SIZE * MESSAGES) // ROUNDS)
    took = dict.fromkeys(KINDS, 0.0)
    cpu = dict.fromkeys(KINDS, 0.0)
    with RawClient(broker.port) as client, RawClient(port) as client_07:
        client.create_topic(TOPIC, flush_messages=str(FLUSH_MESSAGES))
        ends = {
            "native": lambda: end_07(client_07) // len(data) * MESSAGES,
            "modern": lambda: client.end_offset(TOPIC),
        }
        for number in range(ROUNDS + 1):
            for kind, frame, connection in (("native", native, client_07), ("modern", modern, client)):
                before = ends[kind]()
                with used(broker.pid) as usage:
                    began = time.perf_counter()
                    for _ in range(count):
                        connection.socket.sendall(frame)
                    flushed = ends[kind]()
                    seconds = time.perf_counter() - began
                # With 0.7, what was sent after the last flush is not shown yet.
                if flushed - before < (count * MESSAGES) - FLUSH_MESSAGES - MESSAGES:
                    raise Refused(f"{kind}: {flushed - before} of {count * MESSAGES} messages are there")
                if number:  # the first round warms up
                    took[kind] += seconds
                    cpu[kind] += usage.cpu
    return _figures("produce", ROUNDS * count * MESSAGES * SIZE, took, cpu)


def _fetch(bench: Bench, broker: Broker, port: int) -> Figures:
    with RawClient(port) as client:
        end = end_07(client)
    head = struct.calcsize(">ih")
    places = max(1, min(end, 1 << 30) // MIB - 1)  # in the first segment, which is longer than log.file.size

    def ask(number: int) -> bytes:
        body = _request(1, TOPIC) + struct.pack(">qi", number * MIB, MIB)
        return struct.pack(">i", len(body)) + body

    with RawClient(broker.port) as client:
        batch = len(frames.batch([bytes(SIZE)] * MESSAGES))
        total = client.end_offset(TOPIC)
    batches = MIB // batch
    size = batches * batch
    asks, answer = of_broker(TOPIC, size, batches, MESSAGES)
    loads = {
        "native": (port, ask, head + MIB, places, MIB),
        "modern": (broker.port, asks, answer, places_in(total // MESSAGES, batches), size),
    }
    took = dict.fromkeys(KINDS, 0.0)
    cpu = dict.fromkeys(KINDS, 0.0)
    count = max(4, bench.scale.stream // MIB // ROUNDS)
    for number in range(ROUNDS + 1):
        for kind, (where, frame_of, length, positions, payload) in loads.items():
            with used(broker.pid) as usage:
                seconds = fetch(where, frame_of, length, positions, 1, count)
            if number:
                took[kind] += seconds * MIB / payload
                cpu[kind] += usage.cpu * MIB / payload
    return _figures("fetch", ROUNDS * count * MIB, took, cpu)


def _figures(what: str, payload: int, took: dict[str, float], cpu: dict[str, float]) -> Figures:
    found: Figures = {f"kafka07.{what}.ratio": took["modern"] / took["native"]}
    for kind in KINDS:
        found[f"kafka07.{what}.{kind}"] = payload / 1e6 / took[kind]
        found[f"kafka07.{what}.{kind}.cpu"] = cpu[kind] / (payload / GIB)
    return found


def _request(kind: int, topic: str) -> bytes:
    return struct.pack(f">hh{len(topic)}si", kind, len(topic), topic.encode(), 0)


def end_07(client: RawClient) -> int:
    """Return the flushed end of the native log. The broker answers when it has handled everything sent before."""
    body = _request(4, TOPIC) + struct.pack(">qi", -1, 1)
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    return int(struct.unpack(">hiq", client.read_frame())[2])
