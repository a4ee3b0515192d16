"""A log with more and more segments: the cost of an append, a fetch at a random offset, and deleting segments."""

from __future__ import annotations

import random
from pathlib import Path

from kafkapy.protocol.apis import DELETE_RECORDS
from perf import frames
from perf.cpu import used
from perf.many import ask_all, wait_for
from perf.measurement import KAFKA, Bench, Figures, Measurement, Row
from perf.raw_client import RawClient, check

TOPIC = "segments"
VERSION = 1
SETTINGS = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}

APPEND = ("segments.append", "append that rolls the log, broker CPU", "us", "segments")
READ = ("segments.read", "fetch at a random offset, broker CPU", "us", "segments")
RETAIN = ("segments.retention", "deleting all segments but the last, broker CPU each", "us", "segments")
KAFKA_MOST = 1000  # most segments of Apache Kafka: more take minutes
MEASURED_SHARE = 500  # appends are the scale's requests divided by this, because each creates three files


class Segments(Measurement):
    name = "segments"
    quick = False  # the many sizes take too long
    about = "1 to 10,000 segments in one log: appends that roll it, fetches at random offsets, deletion"
    rows = (
        Row("segments.append", "append that rolls the log, CPU", "us", "lower"),
        Row("segments.read", "fetch at a random offset, CPU", "us", "lower"),
        Row("segments.retention", "deleting all segments but the last, CPU per segment", "us", "lower"),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        sizes = bench.scale.sizes(min(bench.scale.most, KAFKA_MOST) if kind == KAFKA else None)
        for size in sizes:
            found = _measure(bench, kind, size)
            for curve in (APPEND, READ, RETAIN):
                bench.point(curve, kind, size, found[curve[0]])
        return found if sizes[-1] == bench.scale.most else {}  # smaller sizes are only in the curves


def _measure(bench: Bench, kind: str, size: int) -> Figures:
    measured = max(bench.scale.requests // MEASURED_SHARE, 2)
    records = frames.batch(frames.plain_values(100, 1))
    frame = frames.produce(TOPIC, records, 1)
    with bench.broker(kind, SETTINGS) as broker, RawClient(broker.port) as client:
        # One batch per segment.
        client.create_topic(TOPIC, segment_bytes=str(len(records) + 10), retention_ms="-1")
        for _ in ask_all(client, [frame] * size):
            pass
        with used(broker.pid) as appending:
            for _ in ask_all(client, [frame] * measured):
                pass
        fetch = frames.FetchFrame(TOPIC, len(records))
        places = random.Random(7)
        asked = [bytes(fetch.at(places.randrange(size))) for _ in range(10 * measured)]
        for _ in ask_all(client, asked):  # the first fetch opens and checks a segment
            pass
        with used(broker.pid) as reading:
            for _ in ask_all(client, asked):
                pass
        directory = broker.log_directory / f"{TOPIC}-0"
        with used(broker.pid) as retaining:
            _delete_records(client)
            wait_for(lambda: _segments(directory) <= 1, "segments below the log start offset still exist", 0.05)
    return {
        "segments.append": appending.cpu / measured * 1e6,
        "segments.read": reading.cpu / (10 * measured) * 1e6,
        "segments.retention": retaining.cpu / (size + measured) * 1e6,
    }


def _delete_records(client: RawClient) -> None:
    request = DELETE_RECORDS.Request
    partition = request.Topics.Partitions(partition_index=0, offset=-1)
    message = request(topics=[request.Topics(name=TOPIC, partitions=[partition])], timeout_ms=30_000)
    answer = client.ask(DELETE_RECORDS, VERSION, message)
    check(answer.topics[0].partitions[0].error_code, "deleting records")


def _segments(directory: Path) -> int:
    return sum(path.suffix == ".log" for path in directory.iterdir())
