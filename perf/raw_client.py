"""A client that sends prebuilt bytes and discards what it reads, so that the broker, not the client, is the limit."""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from kafkapy.errors import name_of
from kafkapy.protocol.apis import CREATE_TOPICS, LIST_OFFSETS, METADATA, PRODUCE
from kafkapy.protocol.headers import read_response_header, request_frame
from perf import frames

LATEST = -1
METADATA_VERSION = 9
CREATE_TOPICS_VERSION = 5
LIST_OFFSETS_VERSION = 5
TIMEOUT = 60.0  # seconds without a byte from the broker: something is broken, not slow


class Refused(RuntimeError):
    """The broker answered with an error code."""


class RawClient:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A time-out on the Python socket costs a poll a call; the kernel's own does not.
        self.socket.settimeout(None)
        limit = struct.pack("ll", int(TIMEOUT), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # Requests that set the stage; nothing of them is measured.

    def ask(self, api: Any, version: int, message: Any) -> Any:
        """Sends one request and decodes its response."""
        self.socket.sendall(request_frame(api, version, 1, frames.CLIENT, message))
        return self.decode(api, version, self.read_frame())

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Creates it and returns when it has leaders; `settings` with _ for . in their names."""
        self._poll(f"topic {topic}: the broker knows of no brokers", lambda: bool(self._metadata(None).brokers))
        request = CREATE_TOPICS.Request
        configs = [request.Topics.Configs(name=name.replace("_", "."), value=value) for name, value in settings.items()]
        wanted = request.Topics(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
        answer = self.ask(CREATE_TOPICS, CREATE_TOPICS_VERSION, request(topics=[wanted], timeout_ms=30_000))
        check(answer.topics[0].error_code, f"creating topic {topic}")
        self.wait_for_topic(topic, create=False)

    def wait_for_topic(self, topic: str, *, create: bool) -> None:
        """Asks for its metadata until every partition has a leader; `create` has the broker make it if missing."""

        def has_leaders() -> bool:
            found = self._metadata(topic, create).topics[0]
            return not found.error_code and all(not partition.error_code for partition in found.partitions)

        self._poll(f"topic {topic} has no leader", has_leaders)

    def without_leader(self, topic: str) -> int:
        """How many of its partitions have none."""
        found = self._metadata(topic).topics[0]
        return sum(partition.error_code != 0 for partition in found.partitions)

    def _metadata(self, topic: str | None, create: bool = False) -> Any:
        request = METADATA.Request
        topics = [] if topic is None else [request.Topics(name=topic)]
        return self.ask(METADATA, METADATA_VERSION, request(topics=topics, allow_auto_topic_creation=create))

    def _poll(self, otherwise: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not done():
            if time.monotonic() > deadline:
                raise Refused(f"{otherwise} after {TIMEOUT:.0f} s")
            time.sleep(0.002)

    def end_offset(self, topic: str) -> int:
        """The high watermark of partition 0."""
        request = LIST_OFFSETS.Request
        partition = request.Topics.Partitions(partition_index=0, timestamp=LATEST)
        wanted = request.Topics(name=topic, partitions=[partition])
        message = request(replica_id=-1, isolation_level=0, topics=[wanted])
        found = self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, message).topics[0].partitions[0]
        check(found.error_code, f"asking for the end of {topic}")
        return int(found.offset)

    # Load.

    def produce_once(self, frame: bytes, *, retry: bool = False) -> int:
        """Sends one produce frame, checks the answer, returns the answer's length with its size field.

        With `retry` an error (a leader that is not there yet) is asked again at once, for a broker that just started.
        """
        deadline = time.monotonic() + TIMEOUT
        while True:
            self.socket.sendall(frame)
            reply = self.read_frame()
            answer = self.decode(PRODUCE, frames.PRODUCE_VERSION, reply)
            code = answer.responses[0].partition_responses[0].error_code
            if not code:
                return len(reply) + 4
            if not retry or time.monotonic() > deadline:
                check(code, "producing")

    def stream(self, frame: bytes, count: int, window: int, together: int = 1) -> float:
        """Produces `frame` `count` times with at most `window` unanswered, `together` frames a send; returns seconds.

        Replies are counted by their length, which the first one tells; that all of them were good is for the caller
        to check by the end offset. `count` and `window` are multiples of `together`.
        """
        reply = self.produce_once(frame)
        sends = memoryview(frame * together)
        sent = received = 0
        total = count * reply
        room = (window - together) * reply
        began = time.perf_counter()
        while received < total:
            while sent < count and sent * reply - received <= room:
                self.socket.sendall(sends)
                sent += together
            received += self._receive(self._buffer)
        return time.perf_counter() - began

    def paced(self, frame: bytes, rate: float, seconds: float) -> tuple[list[float], list[float]]:
        """Produces `rate` frames a second whatever the answers do; returns what `pace` does."""
        return self.pace(frame, self.produce_once(frame), rate, seconds)

    def pace(self, frame: bytes, reply: int, rate: float, seconds: float) -> tuple[list[float], list[float]]:
        """Sends `rate` frames a second, each answered by `reply` bytes; returns latencies and latenesses in seconds.

        A latency runs from the call that sends a frame to the moment its answer was read. As no send ever waits for
        an answer, a slow answer is never hidden by load that did not arrive. A lateness is how far behind its time
        this client itself sent: its own scheduling, no part of the latency.
        """
        count = int(rate * seconds)
        sent_at: list[float] = []
        latencies: list[float] = []
        lateness: list[float] = []
        partial = 0
        gc.disable()  # the client's own pauses are no part of the broker's latency
        try:
            began = time.perf_counter()
            while len(latencies) < count:
                now = time.perf_counter()
                due = began + len(sent_at) / rate
                if len(sent_at) < count and now >= due:
                    self.socket.sendall(frame)
                    sent_at.append(now)
                    lateness.append(now - due)
                    continue
                timeout = due - now if len(sent_at) < count else TIMEOUT
                ready, _, _ = select.select([self.socket], [], [], timeout)
                if ready:
                    partial += self._receive(self._buffer)
                    now = time.perf_counter()
                    while partial >= reply:
                        partial -= reply
                        latencies.append(now - sent_at[len(latencies)])
                elif timeout == TIMEOUT:
                    raise Refused(f"no answer for {TIMEOUT:.0f} s")
        finally:
            gc.enable()
        return latencies, lateness

    def fetch_all(self, fetch: frames.FetchFrame, batch_bytes: int, batch_records: int, end: int) -> float:
        """Fetches from offset 0 to `end` one request at a time and discards it; returns seconds.

        The log holds only batches of `batch_bytes` bytes and `batch_records` records, so the next offset follows
        from the length of the answer.
        """
        head = bytearray(fetch.head)
        offset = 0
        began = time.perf_counter()
        while offset < end:
            self.socket.sendall(fetch.at(offset))
            self._read_into(memoryview(head))
            length = fetch.records_in(head)
            self.discard(length)
            offset += length // batch_bytes * batch_records
        return time.perf_counter() - began

    def discard(self, length: int) -> None:
        """Reads `length` bytes into a buffer that is used again and again."""
        while length > 0:
            length -= self._receive(self._buffer[:length])

    def read_frame(self) -> bytes:
        """The next response without its size."""
        size = bytearray(4)
        self._read_into(memoryview(size))
        frame = bytearray(int.from_bytes(size, "big"))
        self._read_into(memoryview(frame))
        return bytes(frame)

    def decode(self, api: Any, version: int, frame: bytes) -> Any:
        """The message of a response frame."""
        _, body = read_response_header(frame, api, version)
        return api.decode_response(frame, version, body)

    def _read_into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += self._receive(view[done:])

    def _receive(self, view: memoryview) -> int:
        count = self.socket.recv_into(view)
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        return count


def check(code: int, what: str) -> None:
    if code:
        raise Refused(f"{what}: {name_of(code)} ({code})")
