"""Produce throughput with Kafka's own benchmark client, ProducerPerformance, from the same jars as Apache Kafka."""

from __future__ import annotations

import re
import subprocess
import time

from perf import jars, shares
from perf.brokers import Broker, java
from perf.measurement import Bench, Figures, Goal, Measurement, Row
from perf.measurements.produce import ACKS, SIZES
from perf.processes import Child
from perf.raw_client import RawClient

JVM = ["-Xms512M", "-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]  # as bin/kafka-producer-perf-test.sh
TIMEOUT_S = 300.0
LOOK_S = 0.2
SHARE = 4  # sends this fraction of librdkafka's bytes: enough for seconds of load on each of four topics


class Java(Measurement):
    name = "java"
    kafka_4 = True
    about = "produce throughput with Java's ProducerPerformance, linger.ms=5, otherwise default settings"
    quick = False  # in short runs the JVM would mostly compile
    rows = tuple(
        row
        for key, label, ratio in SIZES.values()
        for acks in ACKS.values()
        for row in (
            Row(
                f"java.{key}.acks{acks}",
                f"produce {label}, acks={acks}, Java",
                "MB/s",
                "higher",
                Goal(ratio),
                client=f"java.{key}.acks{acks}.busiest",
            ),
            *shares.rows(f"java.{key}.acks{acks}", f"{label}, acks={acks}, Java"),
        )
    )

    def fetch(self) -> None:
        jars.fetch()

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        with bench.broker(kind) as broker:
            for size, (key, _, _) in SIZES.items():
                for word in ACKS.values():
                    topic = f"java-{key}-{word}"
                    with RawClient(broker.port) as client:
                        client.create_topic(topic)
                    count = bench.scale.client // SHARE // size
                    rate, looks = producer_performance(broker, topic, size, count, word)
                    # In its first half the JVM also starts and compiles.
                    found |= shares.shares(f"java.{key}.acks{word}", *looks[len(looks) // 2 :])
                    found[f"java.{key}.acks{word}"] = rate * size / 1e6
        return found


def producer_performance(
    broker: Broker, topic: str, size: int, count: int, acks: str
) -> tuple[float, list[shares.Look]]:
    """Return the records per second, and looks at client and broker until the client ends. With acks=all this producer
    is idempotent, which is its default."""
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    arguments += ["--producer-props", f"bootstrap.servers={broker.bootstrap}", "linger.ms=5", f"acks={acks}"]
    command = java(broker.data, "org.apache.kafka.tools.ProducerPerformance", *arguments, options=JVM)
    child = Child(command, broker.data / f"{topic}.out")
    looks = [shares.look(child.pid, broker.pid)]
    end_at = time.monotonic() + TIMEOUT_S
    try:
        while (code := _ended(child)) is None:
            looks.append(shares.look(child.pid, broker.pid))
            if time.monotonic() > end_at:
                raise child.failure(f"ProducerPerformance did not end in {TIMEOUT_S:.0f} s")
    finally:
        child.stop()
    with RawClient(broker.port) as client:
        end = client.end_offset(topic)
    rates = re.findall(rf"^{count} records sent, ([\d.]+) records/sec.*99\.9th", child.log.read_text(), re.MULTILINE)
    if code or not rates or end != count:
        raise child.failure(f"ProducerPerformance left {end} of {count} records in {topic}")
    return float(rates[-1]), [look for look in looks if look.client]  # it may have ended during the last one


def _ended(child: Child) -> int | None:
    """Wait for LOOK_S at most; return the exit code, None if the process has not ended."""
    try:
        return child.process.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None
