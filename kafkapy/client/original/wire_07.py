"""A connection to a broker of Kafka 0.7, and the five requests that it knows.

A request is its size, a number that says which it is (int16), and then, of each partition that it is about, topic
(int16 and bytes), partition (int32) and

    Produce 0, MultiProduce 3      the size of a message set (int32) and the set; no answer
    Fetch 1, MultiFetch 2          offset (int64), most bytes (int32); error code (int16), the log from there on
    Offsets 4                      time (int64), most offsets (int32); error code, count (int32), offsets (int64)

Multi: a count (int16) of them, and in the answer a size and an error code before each. There are no versions, no
correlation and no client ids. What a broker cannot do it answers by hanging up. Error codes are -1 for any, and 1 to 4,
which mean what they mean today. Source: kafka.api and kafka.server.KafkaRequestHandlers of Kafka 0.7.2.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import Struct, error, unpack_from
from typing import NamedTuple

from kafkapy.client.connection import LARGEST_FRAME
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed
from kafkapy.runtime.addresses import host_port

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
ANY_PARTITION = -1  # in Produce: the broker chooses
LATEST = -1
CONNECT_S = 10.0

_KEY = Struct(">h")
_SIZE = Struct(">i")
_WHERE = Struct(">i")
_FROM = Struct(">qi")
_SET = Struct(">ih")


class Asked(NamedTuple):
    """What to fetch of a partition: positions of bytes."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


class Connection07:
    """For one thread. After an error it is closed; the next request opens it again.

    Raises, all calls: ConnectionFailed when nobody is there, no answer comes, or the broker hangs up, which it does
    for a partition that it does not have.
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
        """Error code and bytes of each, in that order; the bytes end anywhere, also in the middle of a message."""
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
            raise self._broken("its answer to several fetches does not add up")
        return found

    def offsets_before(self, topic: str, partition: int, time: int, most: int) -> list[int]:
        """Where segments begin, and the end, as SimpleConsumer.get_offsets_before has it."""
        code, data = self._ask(OFFSETS, _named(topic, partition) + _FROM.pack(time, most))
        if code or len(data) < 4 or len(data) != 4 + 8 * (count := _SIZE.unpack_from(data)[0]):
            raise self._broken(f"its answer about offsets of {topic}-{partition} is none (error code {code})")
        return list(unpack_from(f">{count}q", data, 4))

    def produce(self, sets: Sequence[tuple[str, int, bytes]], *, wait: bool) -> None:
        """Message sets for partitions. The broker says nothing; `wait`: until it has taken them, or hung up, which is
        what answers, or does not, the request behind this one."""
        parts = [_named(topic, partition) + _SIZE.pack(len(data)) + data for topic, partition, data in sets]
        if len(parts) == 1:
            self._send(PRODUCE, parts[0])
        else:
            self._send(MULTI_PRODUCE, _KEY.pack(len(parts)) + b"".join(parts))
        if wait:
            topic, partition, _ = sets[0]
            self.offsets_before(topic, max(partition, 0), LATEST, 1)

    def _ask(self, key: int, body: bytes) -> tuple[int, memoryview]:
        """Error code, and what is behind it."""
        self._send(key, body)
        (size,) = _SIZE.unpack(self._receive(4))
        if not 2 <= size <= LARGEST_FRAME:
            raise self._broken(f"its answer has a size of {size} bytes: is it one of Kafka 0.7?")
        answer = memoryview(self._receive(size))
        return _KEY.unpack_from(answer)[0], answer[2:]

    def _send(self, key: int, body: bytes) -> None:
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self.place, CONNECT_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.settimeout(self._timeout_s)
            self._socket.sendall(_SIZE.pack(2 + len(body)) + _KEY.pack(key) + body)
        except OSError as failure:
            raise self._failed(failure) from None

    def _receive(self, size: int) -> bytearray:
        assert self._socket is not None
        data = bytearray(size)
        view, got = memoryview(data), 0
        try:
            while got < size:
                more = self._socket.recv_into(view[got:])
                if not more:
                    raise self._broken("it hung up")
                got += more
        except OSError as failure:
            raise self._failed(failure) from None
        return data

    def _failed(self, failure: OSError) -> ClientError:
        if isinstance(failure, TimeoutError) and self._socket is not None:
            self.close()
            return BrokerTimedOut(f"The broker {self.address} of Kafka 0.7 gave no answer in {self._timeout_s:g} s.")
        return self._broken(str(failure))

    def _broken(self, why: str) -> ConnectionFailed:
        self.close()
        return ConnectionFailed(f"The broker {self.address} of Kafka 0.7 cannot be used: {why}.")


def _named(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return _KEY.pack(len(name)) + name + _WHERE.pack(partition)
