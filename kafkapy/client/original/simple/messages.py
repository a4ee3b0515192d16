"""The message sets that the SimpleConsumer returns. Their messages are decoded during iteration.

Source: kafka.message.ByteBufferMessageSet, kafka.consumer.SimpleConsumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkapy._ext.entry_walk import entries_end
from kafkapy._ext.lazy_records import LazyRecords
from kafkapy._ext.legacy import MessageHeader
from kafkapy._ext.message_sets import decode_message
from kafkapy._ext.records import CorruptRecords
from kafkapy.client.errors import ClientError
from kafkapy.errors import KafkaError
from kafkapy.record.batch import payload_of
from kafkapy.record.compression import NONE
from kafkapy.record.legacy import check, iter_entries, set_of
from kafkapy.record.records import Buffer, Record

FIRST = 17  # enough bytes of a batch or message to read its size and format


class FetchRequest(NamedTuple):
    """One partition of a fetch: topic, partition number, first offset, and the most bytes to return."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class Message(NamedTuple):
    """A fetched message. timestamp: in ms since 1970, or -1 if the message has no timestamp."""

    value: bytes | None
    key: bytes | None
    timestamp: int


class MessageTooLarge(ClientError):
    """A message or compressed batch is larger than the consumer's `max_buffer`, the limit of its fetch size."""

    def __init__(self, topic: str, partition: int, offset: int, size: int, maximum: int) -> None:
        has = f"has {size} bytes" if size > 0 else "has more bytes"
        super().__init__(
            f"The message of {topic}-{partition} at offset {offset} {has}, more than max_buffer, {maximum}: "
            "set max_buffer higher."
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.size = size
        self.maximum = maximum


class MessageSet:
    """The fetched messages of one partition from `offset` on. Iterating yields (offset, Message), any number of times.

    high_watermark: The offset after the last message visible to consumers; -1 after an error, and with Kafka 0.7.
    error: The broker's error for this partition, which iterating raises; None if there is no error.
    size_in_bytes: The size of the fetched data.
    valid_bytes: The size of the complete messages in the data.
    is_partial: True if the last message is incomplete because of the fetch size. The next fetch returns that message.
    first_size: The size of the first message or batch, complete or not; 0 if too little of it was fetched.
    next_offset: The offset at which the next fetch has to start.

    Iterating raises CorruptBatch or CorruptRecords (ValueError) at a damaged message.
    """

    def __init__(
        self,
        request: FetchRequest,
        data: memoryview | bytes = b"",
        high_watermark: int = -1,
        error: KafkaError | None = None,
    ) -> None:
        self.topic = request.topic
        self.partition = request.partition
        self.offset = request.offset
        self.high_watermark = high_watermark
        self.error = error
        self.size_in_bytes = len(data)
        self.valid_bytes, size, after = self._end(data)
        self.next_offset = max(after, request.offset)
        self.is_partial = self.valid_bytes < len(data) and size >= 0
        self.first_size = self._first_size(data)
        self._data = data[: self.valid_bytes] if self.is_partial else data

    def __iter__(self) -> Iterator[tuple[int, Message]]:
        if self.error is not None:
            raise self.error
        yield from self._messages()

    def _end(self, data: Buffer) -> tuple[int, int, int]:
        """Return three numbers: the valid bytes, the size of the incomplete entry after them, and the next offset.

        The valid bytes are those of complete entries (batches, or messages of old formats). The size of the incomplete
        entry is -1 if that entry is malformed. The next offset is the offset after the last complete entry.
        """
        return entries_end(data)

    def _first_size(self, data: Buffer) -> int:
        """Return the size in bytes of the first message or batch, or 0 if too little of it was fetched to know."""
        return max(0, entries_end(data[:FIRST])[1])

    def _messages(self) -> Iterator[tuple[int, Message]]:
        """Yield (offset, Message) from the set's `offset` on, without control batches."""
        for header in iter_entries(self._data):
            check(self._data, header)
            if header.is_control or header.last_offset < self.offset:
                continue
            if isinstance(header, MessageHeader):
                found = _of_message(self._data, header)
            else:
                found = LazyRecords(payload_of(self._data, header), header) if header.count else iter(())
            for offset, timestamp, key, value in found:
                if offset >= self.offset:
                    yield offset, Message(value, key, timestamp)


def _of_message(data: Buffer, header: MessageHeader) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield (offset, timestamp, key, value) of a message of format 0 or 1, or of the messages compressed in it.

    In format 1, inner offsets are relative, and the outer message has the offset of the last inner message (KIP-31).
    """
    if header.codec == NONE:
        record = decode_message(data, header, Record)
        yield record.offset, record.timestamp, record.key, record.value
        return
    inner = set_of(data, header)
    shift = header.offset - (entries_end(inner)[2] - 1) if header.magic else 0
    for one in iter_entries(inner):
        if not isinstance(one, MessageHeader):
            raise CorruptRecords("a compressed message has a batch of format 2 in it")
        record = decode_message(inner, one, Record)
        timestamp = header.timestamp if header.timestamp_type else record.timestamp
        yield record.offset + shift, timestamp, record.key, record.value
