"""Prebuilt requests: the load generator sends them again and again, and encodes nothing while it measures.

Both brokers support their versions, and all responses for a topic have the same length, so that responses can be
counted by their bytes. kafkapy.client.raw.requests encodes them.
"""

from __future__ import annotations

import random

from kafkapy.client.raw import requests
from kafkapy.client.raw.requests import ACKS_ALL, FETCH_BYTES, batch
from perf import flights

__all__ = ["ACKS_ALL", "FETCH_BYTES", "batch"]

PRODUCE_VERSION = 9
FETCH_VERSION = 11
CLIENT = "perf"

BATCH_BYTES = 1_000_000  # librdkafka's batch.size, and slightly below Kafka's max.message.bytes


def plain_values(size: int, count: int) -> list[bytes]:
    """Return `count` times the same value of `size` random bytes."""
    return [random.Random(7).randbytes(size)] * count


def text_values(size: int, count: int) -> list[bytes]:
    """Return `count` different values of `size` bytes each: flights as JSON lines, cut to length."""
    values = []
    flight = flights.lines()
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += next(flight)
        values.append(text[:size].encode())
    return values


def records_that_fill(size: int, batch_bytes: int = BATCH_BYTES) -> int:
    """Return how many values of `size` bytes fit into a batch of `batch_bytes`; a record adds at most 16 bytes."""
    return max(1, batch_bytes // (size + 16))


def produce(topic: str, records: bytes, acks: int, index: int = 0) -> bytes:
    """Return a Produce request that sends `records` to the partition `index` of a topic."""
    return requests.produce(topic, records, acks, index, version=PRODUCE_VERSION, client=CLIENT)


class FetchFrame(requests.FetchFrame):
    """A fetch request for partition 0 from any offset, and the position of the records in its response."""

    def __init__(self, topic: str, max_bytes: int = FETCH_BYTES) -> None:
        super().__init__(topic, max_bytes, version=FETCH_VERSION, client=CLIENT)
