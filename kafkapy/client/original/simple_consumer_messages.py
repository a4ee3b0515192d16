"""What a fetch of the SimpleConsumer brings: a set of messages, decoded one by one as they are asked for.

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
from kafkapy.record.batch import Buffer, Record, payload_of
from kafkapy.record.compression import NONE
from kafkapy.record.legacy import check, iter_entries, set_of

FIRST = 17  # bytes of an entry that tell its size and format


class FetchRequest(NamedTuple):
    """What is wanted of one partition."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class Message(NamedTuple):
    """timestamp: in ms since 1970, -1 where there is none."""

    value: bytes | None
    key: bytes | None
    timestamp: int


class MessageTooLarge(ClientError):
    """A message, or a compressed batch, that is larger than the consumer's buffer may become."""

    def __init__(self, topic: str, partition: int, offset: int, size: int, maximum: int) -> None:
        has = f"has {size} bytes" if size > 0 else "has more bytes"
        super().__init__(
            f"What {topic}-{partition} has at offset {offset} {has}, and the buffer may have {maximum}: "
            "set max_buffer higher."
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.size = size
        self.maximum = maximum


class MessageSet:
    """The messages of one partition from `offset` on. Iterable any number of times, as (offset, Message).

    high_watermark: the offset behind the last message that consumers may see; -1 where the answer is an error, and
        from brokers of Kafka 0.7, which do not tell it.
    error: what the broker said of this partition; iterating raises it.
    size_in_bytes, valid_bytes: of what came, and of the messages in it that are whole.
    is_partial: whether the last message was cut off by the size of the fetch; it comes whole with a next one.
    first_size: the bytes of the first message or batch, whole or not; 0 where not enough of it came to tell.
    next_offset: where to fetch next.

    Iterating raises CorruptBatch or CorruptRecords (ValueError) at a message that is damaged.
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
        """As `entries_end` has it."""
        return entries_end(data)

    def _first_size(self, data: Buffer) -> int:
        return max(0, entries_end(data[:FIRST])[1])

    def _messages(self) -> Iterator[tuple[int, Message]]:
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
    """The message, or those in a compressed one. In format 1 these count from the first, and the last has the
    offset of the whole (KIP-31)."""
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
