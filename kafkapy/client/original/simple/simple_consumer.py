"""The original consumer without a group, which fetches from one broker at given offsets.

    with SimpleConsumer("127.0.0.1", 9092) as consumer:
        messages = consumer.fetch("greetings", 0, 0, 100_000)
        for offset, message in messages:
            print(offset, message.value)
        more = consumer.fetch("greetings", 0, messages.next_offset, 100_000)

Source: kafka.consumer.SimpleConsumer of Kafka 0.7 and 0.8.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.client.administration.admin import EARLIEST, LATEST
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.fetching.batch_fetcher import OffsetOutOfRange
from kafkapy.client.original.kafka_07.simple_consumer import SimpleWire07
from kafkapy.client.original.simple.messages import FetchRequest, MessageSet, MessageTooLarge
from kafkapy.client.original.simple.wire import KafkaSimpleWire, SimpleWire
from kafkapy.client.properties import ClientProperties
from kafkapy.client.security import read_security
from kafkapy.errors import Errors, KafkaError

MAX_BUFFER = 64 << 20

_RESETS = {
    "smallest": EARLIEST,
    "earliest": EARLIEST,
    "largest": LATEST,
    "latest": LATEST,
    "none": None,
    "anything": None,
}


class SimpleConsumer:
    """A consumer that fetches from one broker, for one thread. If the connection is broken, a call reconnects once.

    Args:
        max_buffer: If a message does not fit into `max_bytes`, `fetch` doubles the size up to this limit.
        properties: Kafka's consumer properties. Only `auto.offset.reset` (0.7: `autooffset.reset`) is used: with
            smallest or largest, `fetch` continues at that end of the log if the offset is out of range. Otherwise
            `fetch` raises OffsetOutOfRange.
        max_wait_ms, min_bytes: How long the broker waits for at least `min_bytes` before it responds.
        broker_version: "0.7" for a broker of Kafka 0.7, empty for later versions. In 0.7, offsets are byte positions,
            messages that were compressed together share one offset, and the next fetch has to start at the
            `next_offset` of the message set. The broker responds at once, without waiting for `min_bytes`.
    Raises (all methods):
        ConnectionFailed: The broker cannot be reached or does not respond.
        KafkaError: The broker's error, such as NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kafkapy",
        timeout_s: float = 30.0,
        max_buffer: int = MAX_BUFFER,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        properties: Mapping[str, Any] | None = None,
        broker_version: str = "",
    ) -> None:
        read = ClientProperties(properties or {}, names=[("auto.offset.reset", "autooffset.reset")])
        self._reset = read.word("auto.offset.reset", _RESETS, "none")
        self._max_buffer = max_buffer
        self._wire: SimpleWire
        security = read_security(read)
        if broker_version == "0.7":
            security.refuse_for_07()
            self._wire = SimpleWire07(host, port, timeout_s)
        elif broker_version:
            raise ValueError(f"broker_version is {broker_version!r}; it can be 0.7, or empty for later versions")
        else:
            self._wire = KafkaSimpleWire(host, port, client_id, timeout_s, max_wait_ms, min_bytes, security)

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> MessageSet:
        """Return the messages of a partition from an offset on. The set is empty at the end of the partition.

        Raises:
            OffsetOutOfRange: The offset is not in the log, and `auto.offset.reset` does not say where to continue.
            MessageTooLarge: The first message does not fit into `max_buffer`.
        """
        request = FetchRequest(topic, partition, offset, max_bytes)
        while True:
            (found,) = self.multifetch([request])
            if isinstance(found.error, OffsetOutOfRange) and self._reset is not None:
                there = found.error.earliest if self._reset == EARLIEST else found.error.latest
                if there in (-1, request.offset):
                    raise found.error
                request = request._replace(offset=there)
                continue
            if found.error is not None:
                raise found.error
            if self._fits(found, request.max_bytes):
                return found
            twice = min(max(1, request.max_bytes) * 2, self._max_buffer)
            request = request._replace(max_bytes=twice)

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet]:
        """Fetch several partitions of this broker in one request. Return a message set for each request, in order.

        A partition's error is in the `error` of its message set and does not affect other partitions. If no message of
        a partition fits into `max_bytes`, its message set is empty and `is_partial`; the size is not doubled as in
        `fetch`. Raises ValueError if a partition is requested twice.
        """
        wanted = {(one.topic, one.partition): one for one in requests}
        if len(wanted) < len(requests):
            raise ValueError("a partition can be in a request only once")
        found = self._wire.fetch(requests) if requests else []
        for one in found:
            if one.error is not None and one.error.code == Errors.OFFSET_OUT_OF_RANGE:
                one.error = self._out_of_range(one)
        return found

    def get_offsets_before(self, topic: str, partition: int, time: int, max_offsets: int) -> list[int]:
        """Return up to `max_offsets` start offsets of the log segments written by `time`, newest segment first.

        `time` is in ms since 1970. If the whole log was written by then, the log end offset comes first. The time
        LATEST (-1) returns the log end offset and the start offsets of all segments; EARLIEST (-2) returns only the
        first offset of the log.
        """
        return self._wire.offsets_before(topic, partition, time, max_offsets)

    def _fits(self, found: MessageSet, max_bytes: int) -> bool:
        """Return True if the set has a complete message or is at the end of the log.

        Raise MessageTooLarge if the first message is larger than `max_buffer`. Brokers since 0.10.1 send the first
        message whole even if it exceeds `max_bytes`, so its size is checked too.
        """
        size = found.first_size
        if size > self._max_buffer or (not found.valid_bytes and found.is_partial and max_bytes >= self._max_buffer):
            raise MessageTooLarge(found.topic, found.partition, found.offset, size, self._max_buffer)
        return bool(found.valid_bytes) or not found.is_partial

    def _out_of_range(self, found: MessageSet) -> OffsetOutOfRange:
        where = found.topic, found.partition
        try:
            earliest = self.get_offsets_before(*where, EARLIEST, 1)[0]
            latest = self.get_offsets_before(*where, LATEST, 1)[0]
        except (KafkaError, ConnectionFailed, IndexError):
            earliest = latest = -1
        return OffsetOutOfRange(*where, found.offset, earliest, latest)
