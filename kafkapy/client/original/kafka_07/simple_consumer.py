"""The SimpleConsumer's requests to a broker of Kafka 0.7, and the message sets in the responses.

Source: SimpleConsumer and ByteBufferMessageSet of Kafka 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.original.kafka_07.wire import Asked, Connection07
from kafkapy.client.original.simple.messages import FetchRequest, Message, MessageSet
from kafkapy.client.original.simple.wire import partition_error
from kafkapy.record.kafka07 import LENGTH, Buffer, CorruptMessage, iter_messages, messages_in

T = TypeVar("T")


class SimpleWire07:
    """A SimpleConsumer's connection to a broker of Kafka 0.7: implements the protocol `SimpleWire`."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._connection = Connection07(host, port, timeout_s)

    def close(self) -> None:
        self._connection.close()

    def fetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet]:
        answers = self._call(lambda: self._connection.fetch([Asked(*one) for one in requests]))
        return [_set_of(one, code, data) for one, (code, data) in zip(requests, answers, strict=True)]

    def offsets_before(self, topic: str, partition: int, time: int, most: int) -> list[int]:
        return self._call(lambda: self._connection.offsets_before(topic, partition, time, most))

    def _call(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`. If `ask` fails because the connection was broken, call `ask` once more."""
        fresh = self._connection.closed
        try:
            return ask()
        except BrokerTimedOut:
            raise
        except ConnectionFailed:
            if fresh:
                raise
            return ask()


class MessageSet07(MessageSet):
    """The messages fetched from one partition of Kafka 0.7.

    Iterating raises CorruptMessage (ValueError) at a damaged message.
    """

    def _end(self, data: Buffer) -> tuple[int, int, int]:
        position = 0
        try:
            for message in iter_messages(data):
                position = message.end
        except CorruptMessage:
            return position, -1, self.offset + position
        return position, self._first_size(data[position:]), self.offset + position

    def _first_size(self, data: Buffer) -> int:
        return int.from_bytes(data[:LENGTH], "big") + LENGTH if len(data) >= LENGTH else 0

    def _messages(self) -> Iterator[tuple[int, Message]]:
        for stored in iter_messages(self._data):
            for one in messages_in(stored):
                yield self.offset + stored.position, Message(bytes(one.payload), None, -1)


def _set_of(request: FetchRequest, code: int, data: memoryview) -> MessageSet07:
    """Return the message set of one partition from a fetch response.

    If `code` is not 0, the set has that error and no data.
    """
    if code:
        return MessageSet07(request, error=partition_error(request.topic, request.partition, code))
    return MessageSet07(request, data)
