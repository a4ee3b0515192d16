"""The SimpleConsumer's requests to a broker of Kafka 0.8 or later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kafkapy.client.connection import Connection
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed
from kafkapy.client.fetching.engine import NAMES_UNTIL, FetchedPartition, fetch_request, fetched_partitions
from kafkapy.client.original.simple.messages import FetchRequest, MessageSet
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError, message_of
from kafkapy.protocol.apis import FETCH, LIST_OFFSETS, Api


class SimpleWire(Protocol):
    """A SimpleConsumer's connection to one broker.

    The connection is opened on first use. A call that finds the connection broken reopens it once.
    """

    def fetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet]:
        """Return a message set for each request, in order. A partition's error is in the `error` of its message set."""

    def offsets_before(self, topic: str, partition: int, time: int, most: int) -> list[int]:
        """Return up to `most` start offsets of log segments written by `time`.

        See SimpleConsumer.get_offsets_before.
        """

    def close(self) -> None: ...


class KafkaSimpleWire:
    """A SimpleConsumer's connection to a broker of Kafka 0.8 or later: implements the protocol `SimpleWire`."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        max_wait_ms: int,
        min_bytes: int,
        security: Security,
    ) -> None:
        self._place = host, port
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet]:
        wanted = [((one.topic, one.partition), one.offset, one.max_bytes) for one in requests]
        request = fetch_request(wanted, max_wait_ms=self._max_wait_ms, min_bytes=self._min_bytes)
        response = self._call(FETCH, request, at_most=NAMES_UNTIL)
        answers = {one.where: one for one in fetched_partitions(response)}
        return [_set_of(one, answers.get((one.topic, one.partition))) for one in requests]

    def offsets_before(self, topic: str, partition: int, time: int, most: int) -> list[int]:
        shape = LIST_OFFSETS.Request.Topics
        asked = shape.Partitions(partition_index=partition, timestamp=time, max_num_offsets=most)
        request = LIST_OFFSETS.Request(replica_id=-1, topics=[shape(name=topic, partitions=[asked])])
        response = self._call(LIST_OFFSETS, request, at_most=0)
        for one in response.topics:
            for answer in one.partitions:
                if one.name == topic and answer.partition_index == partition:
                    if answer.error_code:
                        raise partition_error(topic, partition, answer.error_code)
                    return list(answer.old_style_offsets)
        raise partition_error(topic, partition, Errors.UNKNOWN_SERVER_ERROR)

    def _call(self, api: Api, request: Any, *, at_most: int) -> Any:
        """Return the response to a request of at most version `at_most`.

        Reconnect once if the connection was broken.
        """
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
                host,
                port,
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                old_brokers=True,
                security=self._security,
            )
        return self._connection


def _set_of(request: FetchRequest, answer: FetchedPartition | None) -> MessageSet:
    """Return the message set from one partition's part of a Fetch response.

    If the part is missing or has an error code, the message set has no data and has that error.
    """
    if answer is None or answer.error_code:
        code = Errors.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
        return MessageSet(request, error=partition_error(request.topic, request.partition, code))
    return MessageSet(request, answer.data, answer.high_watermark)


def partition_error(topic: str, partition: int, code: int) -> KafkaError:
    """Return the KafkaError for an error code in a partition's response, with a message that names the partition."""
    return KafkaError(code, f"{topic}-{partition}: {message_of(code)}")
