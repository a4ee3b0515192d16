"""Requests as prebuilt bytes: the load generator sends them again and again and encodes nothing while it measures.

Versions are fixed to ones that both brokers serve and whose responses have one length for one topic, so that
replies can be counted by their bytes.
"""

from __future__ import annotations

import random
import struct
import time

from kafkapy.protocol.apis import FETCH, PRODUCE
from kafkapy.protocol.headers import request_frame, response_frame
from kafkapy.record.batch import build
from perf import flights

PRODUCE_VERSION = 9
FETCH_VERSION = 11
CLIENT = "perf"
ACKS_ALL = -1

BATCH_BYTES = 1_000_000  # librdkafka's batch.size, and just under Kafka's max.message.bytes
FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes of the Java consumer, fetch.message.max.bytes of librdkafka


def plain_values(size: int, count: int) -> list[bytes]:
    """`count` values of `size` random bytes."""
    return [random.Random(7).randbytes(size)] * count


def text_values(size: int, count: int) -> list[bytes]:
    """`count` different values of `size` bytes each: flights as JSON lines, cut to length."""
    values = []
    flight = flights.lines()
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += next(flight)
        values.append(text[:size].encode())
    return values


def batch(values: list[bytes], codec: int = 0) -> bytes:
    """One record batch v2 of `values`, without keys, all of this moment."""
    now = int(time.time() * 1000)
    return build([(now, None, value, []) for value in values], codec=codec)


def records_that_fill(size: int, batch_bytes: int = BATCH_BYTES) -> int:
    """How many values of `size` bytes fit a batch of `batch_bytes`; a record itself takes at most 16 bytes more."""
    return max(1, batch_bytes // (size + 16))


def produce(topic: str, records: bytes, acks: int, index: int = 0) -> bytes:
    request = PRODUCE.Request
    partition = request.TopicData.PartitionData(index=index, records=records)
    message = request(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[request.TopicData(name=topic, partition_data=[partition])],
    )
    return request_frame(PRODUCE, PRODUCE_VERSION, 1, CLIENT, message)


class FetchFrame:
    """A fetch request of partition 0 from any offset, and where in its response the records begin."""

    def __init__(self, topic: str, max_bytes: int = FETCH_BYTES) -> None:
        marker = 0x1122334455667788
        request = FETCH.Request
        partition = request.Topics.Partitions(partition=0, fetch_offset=marker, partition_max_bytes=max_bytes)
        message = request(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=max(max_bytes, 50 << 20),
            session_id=0,
            session_epoch=-1,
            topics=[request.Topics(topic=topic, partitions=[partition])],
        )
        self._frame = bytearray(request_frame(FETCH, FETCH_VERSION, 1, CLIENT, message))
        self._offset_at = self._frame.index(struct.pack(">q", marker))
        self.head = len(self._empty_response(topic))
        """Bytes of a response, its size included, before the records; the last four are their length."""

    def at(self, offset: int) -> bytearray:
        """The frame that fetches from `offset`; valid until the next call."""
        struct.pack_into(">q", self._frame, self._offset_at, offset)
        return self._frame

    def records_in(self, head: bytes | bytearray) -> int:
        """Length of the records that follow a response's head; raises if the response carries an error."""
        # Behind the partition's error code: three offsets, the count of aborted transactions, the preferred
        # replica and the length of the records.
        error, _, _, _, aborted, _, length = struct.unpack_from(">hqqqiii", head, self.head - 38)
        if error or aborted > 0:
            raise RuntimeError(f"a fetch was answered with error code {error}, {aborted} aborted transactions")
        return int(length)

    @staticmethod
    def _empty_response(topic: str) -> bytes:
        response = FETCH.Response
        partition = response.Responses.Partitions(partition_index=0, aborted_transactions=None, records=b"")
        message = response(responses=[response.Responses(topic=topic, partitions=[partition])])
        return response_frame(FETCH, FETCH_VERSION, 1, message)
