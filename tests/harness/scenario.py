"""The records that every client writes, and the comparison with the records that a reader gets."""

import random
import time
from collections.abc import Sequence
from functools import cache

from tests.harness.clients.base import Client, Received, Record

PARTITIONS = 3
T0 = 1_700_000_000_000  # 2023-11-14: explicit timestamps begin here
KEEP = {"retention.ms": "-1"}  # without it, records of that age are deleted at the broker's first retention check
WORDS = ("carrier", "delay", "origin", "dest", "gate", "wind", "ünïcode", "航空", "north", "south")


@cache
def records(seed: str) -> tuple[Record, ...]:
    """Return records of every shape for three partitions, in the order in which they are produced."""
    rng = random.Random(seed)
    shapes = [
        Record(b"plain", timestamp=T0, partition=0),
        Record(b"with key", key=b"k", timestamp=T0 + 1, partition=1),
        Record(None, key=b"deleted", timestamp=T0 + 2, partition=1),
        Record(b"null key", timestamp=T0 + 3, partition=2),
        Record(None, key=None, timestamp=T0 + 4, partition=0),
        Record(b"", key=b"", timestamp=T0 + 5, partition=2),
        Record(bytes(range(256)), key="schlüssel".encode(), timestamp=T0 + 6, partition=0),
        Record(
            b"headers",
            key=b"h",
            headers=(("trace", b"1"), ("trace", b"2"), ("none", None), ("empty", b""), ("binary", bytes(range(128)))),
            timestamp=T0 + 7,
            partition=1,
        ),
        Record(b"back in time", timestamp=T0 - 60_000, partition=0),  # timestamps need not ascend
        Record(b"no timestamp", key=b"now", partition=2),
    ]
    for number in range(240):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 40)))
        shapes.append(
            Record(
                f"{number} {text}".encode(),
                key=f"key-{number % 17}".encode() if number % 3 else None,
                timestamp=T0 + 1000 + number,
                partition=number % PARTITIONS,
            )
        )
    return tuple(shapes)


def records_for(client: Client, seed: str) -> list[Record]:
    """Return the records as far as this client can express them."""
    return [client.express(record) for record in records(seed)]


def end_offsets(wanted: Sequence[Record]) -> dict[int, int]:
    """Return the number of records of each partition."""
    return {p: sum(record.partition == p for record in wanted) for p in range(PARTITIONS)}


def assert_same(wanted: Sequence[Record], got: dict[int, list[Received]], *, reader: Client, since_ms: int) -> None:
    """Check that every partition has its records exactly once, in the order of sending, with all their fields."""
    now = int(time.time() * 1000) + 1000
    for partition in range(PARTITIONS):
        expected = [record for record in wanted if record.partition == partition]
        read = got[partition]
        assert [each.offset for each in read] == list(range(len(expected))), f"offsets of partition {partition}"
        for sent, received in zip(expected, read, strict=True):
            where = f"partition {partition} offset {received.offset}"
            assert received.key == sent.key, where
            assert received.value == sent.value, where
            if "binary" in reader.expressive:
                assert received.headers == sent.headers, where
            else:
                assert len(received.headers) == len(sent.headers), where
            if sent.timestamp is None:
                assert since_ms - 1000 <= received.timestamp <= now, where
            else:
                assert received.timestamp == sent.timestamp, where
