"""Copying a topic from one kafkapy broker to another with `kafkapy mirror` and with MirrorMaker of Kafka 0.10.2.2.

In these rows the side `kafka` is MirrorMaker, not Apache Kafka's broker. The mirror has one core; both brokers and this
process have the other. The mirror has default settings; the records have keys, which choose the partitions. The time is
that of the middle half of the records, by their arrival in the target, so that the start of a JVM and its compiler do
not count.
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
POLL_S = 0.005


class Mirror(Measurement):
    name = "mirror"
    about = "copying a topic from broker to broker on one core, compared with Kafka 0.10.2.2's MirrorMaker"
    quick = False  # in short runs the JVM would mostly compile
    rows = tuple(
        row
        for key, label in SIZES.values()
        for row in (
            Row(f"mirror.{key}", f"mirror {label} records, peer: MirrorMaker", "MB/s", "higher", Goal(1.0)),
            Row(
                f"mirror.{key}.cpu",
                f"mirror {label} records, CPU of the mirror per GiB",
                "s",
                "lower",
                Goal(1.0),
                digits=2,
            ),
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
    """Create and fill the topic; return the number of its records."""
    values = frames.plain_values(size, frames.records_that_fill(size, BATCH))
    now = int(time.time() * 1000)
    records = build([(now, b"key-%d" % number, value, ()) for number, value in enumerate(values)])
    each = max(2, payload // PARTITIONS // size // len(values))
    with RawClient(port) as client:
        client.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            client.stream(frames.produce(topic, records, 1, partition), each - 1, 5)  # sends one more before the others
    return each * len(values) * PARTITIONS


def _command(kind: str, source: Broker, target: Broker, topic: str) -> Sequence[str]:
    """Return the command line of a mirror; both mirrors read the same two property files."""
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
    """Return wall and CPU seconds of the mirror for half of the records, beginning after about the first quarter."""
    places = {(topic, partition): LATEST for partition in range(PARTITIONS)}
    begin = 0, time.perf_counter(), cpu_seconds(mirror.pid)  # the last poll before a quarter was copied
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
            time.sleep(POLL_S)
