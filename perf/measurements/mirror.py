"""A topic copied from one broker to another: `kafkapy mirror` beside MirrorMaker of Kafka 0.10.2.2, both brokers ours.

The side `kafka` of a row is here MirrorMaker, not Apache Kafka's broker. The mirror has one core, both brokers and what
looks on have the other. Its properties are as they come; the records have keys, and go where those say. The time is
that of the middle half of them, by what the target has, so that neither the start of a JVM nor its compiler counts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kafkapy.client.administration.admin import LATEST, Admin
from kafkapy.record.batch import build
from perf import frames, jars
from perf.brokers import Broker, java
from perf.cpu import cpu_seconds, pinned
from perf.measurement import GIB, KAFKA, KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.processes import Child
from perf.raw_client import RawClient

SIZES = {1024: ("1k", "1 KiB"), 100: ("100b", "100 B")}
BATCH = 64 * 1024
PARTITIONS = 4
JVM = ["-Xmx1G", "-Djava.awt.headless=true"]
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
STALL_S = 60.0
GLANCE_S = 0.005


class Mirror(Measurement):
    name = "mirror"
    about = "a topic copied from broker to broker on one core, beside Kafka 0.10.2.2's MirrorMaker"
    quick = False  # a JVM that runs for a second measures its own compiler
    rows = tuple(
        row
        for key, label in SIZES.values()
        for row in (
            Row(f"mirror.{key}", f"mirror {label} records, beside MirrorMaker", "MB/s", "higher", Goal(1.0)),
            Row(f"mirror.{key}.cpu", f"mirror {label} records, its CPU a GiB", "s", "lower", Goal(1.0), digits=2),
        )
    )

    def fetch(self) -> None:
        jars.fetch(jars.LAST_ORIGINAL)

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        cores = sorted(os.sched_getaffinity(0))
        with ExitStack() as ending:
            source, target = (ending.enter_context(bench.broker(KAFKAPY, SETTINGS)) for _ in range(2))
            for broker in (source, target):
                ending.enter_context(pinned(broker.pid, cores[:1], cores[:1]))
            for size, (key, _) in SIZES.items():
                count = _fill(source.port, key, size, bench.scale.client // (4 if size > 512 else 16))
                with RawClient(target.port) as client:
                    client.create_topic(key, PARTITIONS)
                command = ["taskset", "-c", str(cores[-1]), *_command(kind, source, target, key)]
                mirror = Child(command, target.data / f"mirror-{key}.out")
                try:
                    seconds, cpu = _middle(mirror, target, key, count)
                finally:
                    mirror.stop()
                payload = count // 2 * size
                found[f"mirror.{key}"] = payload / 1e6 / seconds
                found[f"mirror.{key}.cpu"] = cpu / (payload / GIB)
        return found


def _fill(port: int, topic: str, size: int, payload: int) -> int:
    """Makes the topic; returns how many records it has."""
    values = frames.plain_values(size, frames.records_that_fill(size, BATCH))
    now = int(time.time() * 1000)
    records = build([(now, b"key-%d" % number, value, ()) for number, value in enumerate(values)])
    each = max(2, payload // PARTITIONS // size // len(values))
    with RawClient(port) as client:
        client.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            client.stream(frames.produce(topic, records, 1, partition), each - 1, 5)  # which sends one before it counts
    return each * len(values) * PARTITIONS


def _command(kind: str, source: Broker, target: Broker, topic: str) -> Sequence[str]:
    """Both take the same two files."""
    consumer, producer = (_written(broker.data / f"{topic}.properties", broker) for broker in (source, target))
    with consumer.open("a") as file:
        file.write(f"group.id=mirror-{topic}\nauto.offset.reset=earliest\n")
    if kind == KAFKA:
        words = ["--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", topic]
        return java(target.data, "kafka.tools.MirrorMaker", *words, options=JVM, version=jars.LAST_ORIGINAL)
    words = ["--consumer", str(consumer), "--producer", str(producer), "--whitelist", topic]
    return [sys.executable, "-m", "kafkapy", "mirror", *words]


def _written(file: Path, broker: Broker) -> Path:
    file.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    return file


def _middle(mirror: Child, target: Broker, topic: str, count: int) -> tuple[float, float]:
    """Seconds, and those of its processor, for half of the records from about the first quarter on."""
    places = {(topic, partition): LATEST for partition in range(PARTITIONS)}
    begin = 0, time.perf_counter(), cpu_seconds(mirror.pid)  # the last look before the first quarter was there
    since, before = time.monotonic(), 0
    with Admin(target.bootstrap) as admin:
        while True:
            there = sum(one.offset for one in admin.offsets_now(places).values())
            now, cpu = time.perf_counter(), cpu_seconds(mirror.pid)
            if there < count // 4:
                begin = there, now, cpu
            elif there >= count * 3 // 4:
                share = count / 2 / (there - begin[0])
                return (now - begin[1]) * share, (cpu - begin[2]) * share
            if there > before:
                since, before = time.monotonic(), there
            if mirror.process.poll() is not None or time.monotonic() - since > STALL_S:
                raise mirror.failure(f"the mirror copied {there} of {count} records")
            time.sleep(GLANCE_S)
