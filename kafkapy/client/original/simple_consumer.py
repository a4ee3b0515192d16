"""The original consumer without a group and without memory: it asks one broker for what it is told.

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

from kafkapy.client.batch_fetcher import OffsetOutOfRange
from kafkapy.client.connection import Connection
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.fetched import NAMES_UNTIL
from kafkapy.client.original.simple_consumer_messages import FetchRequest, MessageSet, MessageTooLarge
from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS, Api

LATEST, EARLIEST = -1, -2
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
    """For one thread. A connection that broke is made anew, once for each call.

    Args:
        max_buffer: a message that does not fit into `max_bytes` is fetched again with twice as much, up to this.
        properties: of Kafka's consumer; `auto.offset.reset` (0.7: `autooffset.reset`) counts: with smallest or
            largest `fetch` begins there when the partition does not have the offset, else it raises OffsetOutOfRange.
        max_wait_ms, min_bytes: how long the broker waits for how much, when there is less.
    Raises, all calls:
        ConnectionFailed: the broker cannot be reached, or does not answer.
        KafkaError: what the broker says, such as NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
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
    ) -> None:
        self._reset = _reset_of(properties or {})
        self._place = host, port
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._max_buffer = max_buffer
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._connection: Connection | None = None

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> MessageSet:
        """Messages from an offset on; empty at the end of the partition.

        Raises:
            OffsetOutOfRange: with what the partition has; unless `auto.offset.reset` says where to go on.
            MessageTooLarge: the first message does not fit into `max_buffer`.
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
        """Several partitions of this broker in one request; a set for each, in that order.

        An error of one partition is in its set, `error`, and the others are there all the same. So is a set of which
        nothing is whole, `is_partial`: nothing is doubled here.
        """
        wanted = {(one.topic, one.partition): one for one in requests}
        if len(wanted) < len(requests):
            raise ValueError("a partition can be in a request only once")
        answers = self._fetch(requests) if requests else {}
        return [self._set_of(one, answers.get((one.topic, one.partition))) for one in requests]

    def get_offsets_before(self, topic: str, partition: int, time: int, max_offsets: int) -> list[int]:
        """Where segments begin that were written by `time` (ms since 1970), and the end of the partition where that
        is before it: the newest first, `max_offsets` at most. LATEST (-1): also the end; EARLIEST (-2): the first
        offset alone."""
        shape = LIST_OFFSETS.Request.Topics
        asked = shape.Partitions(partition_index=partition, timestamp=time, max_num_offsets=max_offsets)
        request = LIST_OFFSETS.Request(replica_id=-1, topics=[shape(name=topic, partitions=[asked])])
        response = self._call(LIST_OFFSETS, request, at_most=0)
        for one in response.topics:
            for answer in one.partitions:
                if one.name == topic and answer.partition_index == partition:
                    if answer.error_code:
                        raise _error(topic, partition, answer.error_code)
                    return list(answer.old_style_offsets)
        raise _error(topic, partition, Errors.UNKNOWN_SERVER_ERROR)

    def _fits(self, found: MessageSet, max_bytes: int) -> bool:
        """Whether there is a whole message, or nothing at all. Brokers since 0.10.1 send the first one whole, however
        small the buffer is: the maximum holds for them too."""
        size = found.first_size
        if size > self._max_buffer or (not found.valid_bytes and found.is_partial and max_bytes >= self._max_buffer):
            raise MessageTooLarge(found.topic, found.partition, found.offset, size, self._max_buffer)
        return bool(found.valid_bytes) or not found.is_partial

    def _fetch(self, requests: Sequence[FetchRequest]) -> dict[tuple[str, int], Any]:
        topics: dict[str, list[Any]] = {}
        for one in requests:
            asked = FETCH.Request.Topics.Partitions(
                partition=one.partition, fetch_offset=one.offset, partition_max_bytes=one.max_bytes
            )
            topics.setdefault(one.topic, []).append(asked)
        request = FETCH.Request(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            topics=[FETCH.Request.Topics(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        response = self._call(FETCH, request, at_most=NAMES_UNTIL)
        if response.error_code:
            raise KafkaError(response.error_code)
        return {(one.topic, part.partition_index): part for one in response.responses for part in one.partitions}

    def _set_of(self, request: FetchRequest, answer: Any) -> MessageSet:
        if answer is None:
            return MessageSet(request, error=_error(request.topic, request.partition, Errors.UNKNOWN_SERVER_ERROR))
        if answer.error_code == Errors.OFFSET_OUT_OF_RANGE:
            return MessageSet(request, error=self._out_of_range(request))
        if answer.error_code:
            return MessageSet(request, error=_error(request.topic, request.partition, answer.error_code))
        return MessageSet(request, memoryview(answer.records or b""), answer.high_watermark)

    def _out_of_range(self, request: FetchRequest) -> OffsetOutOfRange:
        where = request.topic, request.partition
        try:
            earliest = self.get_offsets_before(*where, EARLIEST, 1)[0]
            latest = self.get_offsets_before(*where, LATEST, 1)[0]
        except (KafkaError, ConnectionFailed, IndexError):
            earliest = latest = -1
        return OffsetOutOfRange(*where, request.offset, earliest, latest)

    def _call(self, api: Api, request: Any, *, at_most: int) -> Any:
        fresh = self._connection is None or self._connection.closed
        try:
            return self._connected().call(api, request, at_most=at_most)
        except BrokerTimedOut:
            raise
        except ConnectionFailed:
            if fresh:
                raise
            return self._connected().call(api, request, at_most=at_most)

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            host, port = self._place
            self._connection = Connection(
                host, port, client_id=self._client_id, timeout_s=self._timeout_s, old_brokers=True
            )
        return self._connection


def _reset_of(properties: Mapping[str, Any]) -> int | None:
    """Where to go on; None: nowhere."""
    for name in ("auto.offset.reset", "autooffset.reset"):
        word = properties.get(name)
        if word is not None:
            if word not in _RESETS:
                raise ValueError(f"{name} is {word!r}; it can be smallest, largest or none")
            return _RESETS[word]
    return None


def _error(topic: str, partition: int, code: int) -> KafkaError:
    return KafkaError(code, f"{topic}-{partition}: {message_of(code)}")
