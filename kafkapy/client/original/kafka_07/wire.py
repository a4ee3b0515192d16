"""A connection to a broker of Kafka 0.7, with its five requests.

A request is its size, its type (int16), and for each partition: topic (int16 and bytes), partition (int32) and

    Produce 0, MultiProduce 3      the size of a message set (int32) and the set; no response
    Fetch 1, MultiFetch 2          offset (int64), max bytes (int32); response: error code (int16), the log's bytes
    Offsets 4                      time (int64), max offsets (int32); response: error code, count (int32), offsets

MultiProduce and MultiFetch begin with the number of partitions (int16). The response to MultiFetch has a size and an
error code for each partition. There are no versions, correlation ids or client ids. The broker closes the connection on
a request that it cannot serve. Error codes are -1 for any error, and 1 to 4 with the meaning that they still have.
Source: kafka.api and kafka.server.KafkaRequestHandlers of Kafka 0.7.2.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, error, unpack_from
from typing import NamedTuple

from kafkapy.client.connection import LARGEST_FRAME
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed
from kafkapy.client.original.assignment import Partition
from kafkapy.runtime.addresses import host_port

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
ANY_PARTITION = -1  # in Produce: let the broker choose
LATEST = -1
CONNECT_S = 10.0
_MOST_PARTITIONS = 0x7FFF  # in a request, as their number is an int16

_KEY = Struct(">h")
_SIZE = Struct(">i")
_WHERE = Struct(">i")
_FROM = Struct(">qi")
_SET = Struct(">ih")


class Asked(NamedTuple):
    """One partition of a fetch request. The offset is a byte position in the partition's log."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


def most_partitions(max_bytes: int) -> int:
    """Return for how many partitions one fetch may ask, each with up to `max_bytes` bytes of data.

    The response to more could be larger than LARGEST_FRAME.
    """
    return max(1, min(_MOST_PARTITIONS, (LARGEST_FRAME - _KEY.size) // (_SET.size + max_bytes)))


class Connection07:
    """A connection to a broker of Kafka 0.7, for one thread. It is opened by the first request.

    An error closes the connection, and the next request opens it again. All methods that send a request raise
    ConnectionFailed if the broker cannot be reached, does not respond, or closes the connection, as Kafka 0.7 does when
    asked for a partition that it does not have.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self.address = host_port(host, port)
        self.place = host, port
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    @property
    def closed(self) -> bool:
        return self._socket is None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fetch(self, wanted: Sequence[Asked]) -> list[tuple[int, memoryview]]:
        """Return the error code and the data of each partition, in the order of `wanted`.

        The data may end in the middle of a message. `most_partitions` limits the number of partitions.
        """
        asked = [_named(one.topic, one.partition) + _FROM.pack(one.offset, one.max_bytes) for one in wanted]
        if len(asked) == 1:
            return [self._ask(FETCH, asked[0])]
        code, data = self._ask(MULTI_FETCH, _KEY.pack(len(asked)) + b"".join(asked))
        if code:
            return [(code, memoryview(b""))] * len(asked)
        found, at = [], 0
        try:
            for _ in asked:
                size, code = _SET.unpack_from(data, at)
                found.append((code, data[at + _SET.size : at + 4 + size]))
                at += 4 + size
        except error:
            at = -1
        if at != len(data):
            raise self._broken("its response to several fetches has wrong sizes")
        return found

    def offsets_before(self, topic: str, partition: int, time: int, most: int) -> list[int]:
        """Return up to `most` start offsets of log segments written by `time`.

        See SimpleConsumer.get_offsets_before.
        """
        code, data = self._ask(OFFSETS, _named(topic, partition) + _FROM.pack(time, most))
        if code or len(data) < 4 or len(data) != 4 + 8 * (count := _SIZE.unpack_from(data)[0]):
            raise self._broken(f"its response about offsets of {topic}-{partition} is malformed (error code {code})")
        return list(unpack_from(f">{count}q", data, 4))

    def produce(self, sets: Sequence[tuple[str, int, bytes]], *, wait: bool) -> None:
        """Send message sets, each given as (topic, partition, encoded set). The broker does not respond to Produce.

        With `wait`, also send a request that has a response, so that this method returns only after the broker has
        processed the Produce.
        """
        parts = [_named(topic, partition) + _SIZE.pack(len(data)) + data for topic, partition, data in sets]
        if len(parts) == 1:
            self._send(PRODUCE, parts[0])
        else:
            self._send(MULTI_PRODUCE, _KEY.pack(len(parts)) + b"".join(parts))
        if wait:
            topic, partition, _ = sets[0]
            self.offsets_before(topic, max(partition, 0), LATEST, 1)

    def _ask(self, key: int, body: bytes) -> tuple[int, memoryview]:
        """Send a request of type `key`. Return the response's error code and the bytes that follow the error code."""
        try:
            self._send(key, body)
            (size,) = _SIZE.unpack(self._receive(4))
            if not 2 <= size <= LARGEST_FRAME:
                raise self._broken(f"its response has a size of {size} bytes: is it a broker of Kafka 0.7?")
            answer = memoryview(self._receive(size))
        except BaseException:  # also KeyboardInterrupt: the rest of this response would be taken for the next one
            self.close()
            raise
        return _KEY.unpack_from(answer)[0], answer[2:]

    def _send(self, key: int, body: bytes) -> None:
        """Send a request of type `key` with its size in front. Connect first if there is no connection."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self.place, CONNECT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.settimeout(self._timeout_s)
            self._socket.sendall(_SIZE.pack(2 + len(body)) + _KEY.pack(key) + body)
        except OSError as failure:
            raise self._failed(failure) from None
        except BaseException:  # also KeyboardInterrupt: the next request would be taken for the rest of this one
            self.close()
            raise

    def _receive(self, size: int) -> bytearray:
        """Receive exactly `size` bytes. Raise ConnectionFailed if the broker closes the connection first."""
        assert self._socket is not None
        data = bytearray(size)
        view, got = memoryview(data), 0
        try:
            while got < size:
                more = self._socket.recv_into(view[got:])
                if not more:
                    raise self._broken("it closed the connection")
                got += more
        except OSError as failure:
            raise self._failed(failure) from None
        return data

    def _failed(self, failure: OSError) -> ClientError:
        """Close the connection.

        Return the exception to raise for a socket error: BrokerTimedOut or ConnectionFailed.
        """
        if isinstance(failure, TimeoutError) and self._socket is not None:
            self.close()
            return BrokerTimedOut(f"The broker {self.address} of Kafka 0.7 did not respond in {self._timeout_s:g} s.")
        return self._broken(str(failure))

    def _broken(self, why: str) -> ConnectionFailed:
        """Close the connection. Return a ConnectionFailed whose message has `why` as the reason."""
        self.close()
        return ConnectionFailed(f"The broker {self.address} of Kafka 0.7 cannot be used: {why}.")


def _named(topic: str, partition: int) -> bytes:
    """Return a topic and partition encoded as in a request: name length, name, partition number."""
    name = topic.encode()
    return _KEY.pack(len(name)) + name + _WHERE.pack(partition)


def ends_07(
    brokers: Mapping[int, tuple[str, int]], partitions: Iterable[Partition], timeout_s: float
) -> dict[Partition, int]:
    """Return the log end offset, a byte position, of each partition (topic, "BROKER-NUMBER").

    Partitions of brokers that are not in `brokers` are left out. Raises ClientError if a broker cannot be asked.
    """
    found: dict[Partition, int] = {}
    connections: dict[int, Connection07] = {}
    try:
        for topic, name in sorted(partitions):
            broker, _, number = name.partition("-")
            if not number or int(broker) not in brokers:
                continue
            if int(broker) not in connections:
                connections[int(broker)] = Connection07(*brokers[int(broker)], timeout_s)
            found.update(
                ((topic, name), end) for end in connections[int(broker)].offsets_before(topic, int(number), LATEST, 1)
            )
    finally:
        for connection in connections.values():
            connection.close()
    return found
