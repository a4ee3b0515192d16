"""The log cleaner: how fast it compacts a log, and the latency of a producer meanwhile.

Two topics are filled with the same records: half a million keys, each as often as the size allows. A dirty ratio of 1,
which is never exceeded, keeps the cleaner from starting until it is lowered. The first log is compacted without any
other load; the speed is taken from the broker's log (bytes read in the second pass, divided by the time of both
passes). While the second log is compacted, a producer sends to a third topic at a fixed rate.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

from crc32c import crc32c

from kafkapy.record.batch import build
from perf import frames
from perf.admin import TOPIC, configure
from perf.brokers import Broker
from perf.measurement import MIB, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, Refused
from perf.stats import percentile

KEYS = 500_000
SHARE = 4  # each log has this fraction of the usual segment: filling takes longer than compacting
SIZE = 100
CODECS = {"none": 0, "lz4": 3}
RATE = 1000
TURN_S = 0.25
SETTINGS = {"log.cleaner.backoff.ms": "100"}
LET_CLEAN = {"min.cleanable.dirty.ratio": "0.01"}
LIMIT_S = 600.0
# The brokers' log lines about a compaction: the name of the log and the speed in MB/s.
CLEANED = {
    "kafka": re.compile(r"cleaned log (\S+) \(dirty section.*?\(([\d.,]+) MB/sec\)", re.DOTALL),
    "kafkapy": re.compile(r"\b(\S+): cleaned up to offset .*?\(([\d.,]+) MB/s\)"),
}


class Compaction(Measurement):
    name = "compaction"
    about = f"the cleaner on a log of 256 MiB with {KEYS:,} keys and values of {SIZE} B; bare: two reads with CRC-32C"
    rows = (
        Row("compaction.none", f"compaction, 256 MiB, {SIZE} B values, {KEYS:,} keys", "MB/s", "higher", Goal(1.5)),
        Row("compaction.lz4", "the same, lz4 (bytes as stored)", "MB/s", "higher", Goal(1.5)),
        Row("compaction.p50", "produce to ack at 1,000/s during compaction, p50", "ms", "lower", digits=3),
        Row("compaction.p99", "the same, p99", "ms", "lower", Goal(1.0), digits=3),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        found: Figures = {}
        size = bench.scale.segment // SHARE
        for name, codec in CODECS.items():
            with bench.broker(kind, SETTINGS) as broker, RawClient(broker.port) as client:
                alone, beside = f"alone-{name}", f"beside-{name}"
                with_keys = keyed_batches(size, codec)
                for topic in (alone, beside) if name == "none" else (alone,):
                    client.create_topic(
                        topic,
                        cleanup_policy="compact",
                        min_cleanable_dirty_ratio="1",
                        segment_bytes=str(size // 8),
                    )
                    _fill(client, topic, with_keys, size)
                configure(client, TOPIC, alone, LET_CLEAN)
                found[f"compaction.{name}"] = _speed(broker, alone, lambda: time.sleep(0.02))
                if name == "none":
                    found |= _beside(client, broker, beside)
        return found

    def limit(self, bench: Bench) -> Figures:
        buffer = bytearray(MIB)
        pieces = max(1, bench.scale.segment // SHARE // MIB)
        with bench.data() as path:
            file = path / "bare"
            with file.open("wb") as output:
                for _ in range(pieces):
                    output.write(buffer)
            began = time.perf_counter()
            for _ in range(2):
                with file.open("rb", buffering=0) as opened:
                    while opened.readinto(buffer):
                        crc32c(buffer)
            return {"compaction.none": pieces / (time.perf_counter() - began)}


def keyed_batches(total: int, codec: int) -> list[bytes]:
    """Return batches with every key once, in random order; with fewer keys if `total` is too small for all."""
    chance = random.Random(7)
    count = min(KEYS, total // SIZE // 4)
    keys = chance.sample(range(KEYS), count)
    values = frames.text_values(SIZE, 1000) if codec else frames.plain_values(SIZE, 1000)
    now = int(time.time() * 1000)
    room = frames.records_that_fill(SIZE + 16, min(frames.BATCH_BYTES, total // 64))
    batches = []
    for begin in range(0, count, room):
        rows: list[tuple[int, bytes, bytes, list[tuple[str, bytes | None]]]] = [
            (now, b"key-%012d" % key, values[key % 1000], []) for key in keys[begin : begin + room]
        ]
        batches.append(build(rows, codec=codec))
    return batches


def _fill(client: RawClient, topic: str, batches: list[bytes], total: int) -> None:
    """Send the batches again and again until the log has `total` bytes, with several in flight."""
    sent = 0
    requests = [frames.produce(topic, batch, 1) for batch in batches]
    reply = client.produce_once(requests[0], retry=True)
    unanswered = 0
    while sent < total:
        for request in requests:
            client.socket.sendall(request)
            sent += len(request)
            unanswered += reply
            if unanswered >= 5 * reply:
                client.discard(unanswered)
                unanswered = 0
            if sent >= total:
                break
    client.discard(unanswered)


def _speed(broker: Broker, topic: str, meanwhile: Callable[[], object]) -> float:
    """Wait until the broker logs that it has compacted the log, and return the speed; call `meanwhile` repeatedly."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        for log, speed in CLEANED[broker.kind].findall(broker.child.output()):
            if log == f"{topic}-0":
                return float(speed.replace(",", ""))
        if time.monotonic() > deadline:
            raise Refused(f"{topic} was not compacted in {LIMIT_S:.0f} s")
        meanwhile()


def _beside(client: RawClient, broker: Broker, topic: str) -> Figures:
    """Measure the latencies of a producer to another topic while this one is compacted."""
    frame = frames.produce("paced", frames.batch(frames.plain_values(SIZE, 1)), 1)
    client.create_topic("paced")
    client.paced(frame, RATE, 4 * TURN_S)
    latencies: list[float] = []
    configure(client, TOPIC, topic, LET_CLEAN)
    _speed(broker, topic, lambda: latencies.extend(client.paced(frame, RATE, TURN_S)[0]))
    latencies.sort()
    return {f"compaction.{key}": percentile(latencies, share) * 1e3 for key, share in (("p50", 0.5), ("p99", 0.99))}
