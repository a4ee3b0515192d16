"""Prebuilt requests: the load generator sends them again and again, and encodes nothing while it measures.

Both brokers support their versions, and all responses for a topic have the same length, so that responses can be
counted by their bytes.
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

BATCH_BYTES = 1_000_000  # librdkafka's batch.size, and slightly below Kafka's max.message.bytes
FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes of the Java consumer, fetch.message.max.bytes of librdkafka


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


def batch(values: list[bytes], codec: int = 0) -> bytes:
    """Return one record batch v2 of `values`, without keys, all with the current time as timestamp."""
    now = int(time.time() * 1000)
    return build([(now, None, value, []) for value in values], codec=codec)


def records_that_fill(size: int, batch_bytes: int = BATCH_BYTES) -> int:
    """Return how many values of `size` bytes fit into a batch of `batch_bytes`; a record adds at most 16 bytes."""
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
    """A fetch request for partition 0 from any offset, and the position of the records in its response."""

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
        """Bytes of a response before the records, with the size field; the last four are the length of the records."""

    def at(self, offset: int) -> bytearray:
        """Return the frame that fetches from `offset`; valid until the next call."""
        struct.pack_into(">q", self._frame, self._offset_at, offset)
        return self._frame

    def records_in(self, head: bytes | bytearray) -> int:
        """Return the length of the records after a response's head; raise RuntimeError if the response has an error."""
        # After the partition's error code: three offsets, the number of aborted transactions, the preferred replica
        # and the length of the records.
        error, _, _, _, aborted, _, length = struct.unpack_from(">hqqqiii", head, self.head - 38)
        if error or aborted > 0:
            raise RuntimeError(f"a fetch response has error code {error}, {aborted} aborted transactions")
        return int(length)

    @staticmethod
    def _empty_response(topic: str) -> bytes:
        response = FETCH.Response
        partition = response.Responses.Partitions(partition_index=0, aborted_transactions=None, records=b"")
        message = response(responses=[response.Responses(topic=topic, partitions=[partition])])
        return response_frame(FETCH, FETCH_VERSION, 1, message)
