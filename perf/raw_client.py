"""A client that sends prebuilt requests and discards most responses, so that the broker is the limit."""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.client.raw.connection import TIMEOUT, RawConnection
from kafkapy.errors import name_of
from kafkapy.protocol.apis import ALTER_PARTITION_REASSIGNMENTS, CREATE_TOPICS, LIST_OFFSETS, METADATA, PRODUCE
from perf import frames

LATEST = -1
METADATA_VERSION = 9
CREATE_TOPICS_VERSION = 5
LIST_OFFSETS_VERSION = 5


class Refused(RuntimeError):
    """The broker returned an error code."""


class RawClient(RawConnection):
    """A connection to a broker on this machine."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        super().__init__(socket.create_connection((host, port), TIMEOUT), frames.CLIENT)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Requests that prepare a measurement; they are not measured.

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic and wait until its partitions have leaders; `settings` have _ instead of . in their names.

        Apache Kafka 4 names leaders a moment before they lead, so the first and the last partition are asked, too.
        """
        self._poll(f"topic {topic}: the broker knows of no brokers", lambda: bool(self._metadata(None).brokers))
        request = CREATE_TOPICS.Request
        configs = [request.Topics.Configs(name=name.replace("_", "."), value=value) for name, value in settings.items()]
        wanted = request.Topics(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
        self._create(request(topics=[wanted], timeout_ms=30_000))
        self.wait_for_topic(topic, create=False)
        for index in {0, partitions - 1}:
            self._poll(f"{topic}-{index} has no leader", lambda at=index: not self._latest(topic, at).error_code)

    def create_assigned(self, topic: str, replicas: Sequence[Sequence[int]], **settings: str) -> None:
        """Create a topic with these replicas of each partition. This connection must lead to the controller."""
        self._create(creation(topic, replicas, **settings))

    def _create(self, request: Any) -> None:
        answer = self.ask(CREATE_TOPICS, CREATE_TOPICS_VERSION, request)
        check(answer.topics[0].error_code, f"creating topic {request.topics[0].name}")

    def reassign(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Ask the controller, to which this connection must lead, to move the partitions of a topic to these
        replicas."""
        request = ALTER_PARTITION_REASSIGNMENTS.Request
        topics = request.Topics
        partitions = [topics.Partitions(partition_index=at, replicas=[*ids]) for at, ids in enumerate(replicas)]
        message = request(topics=[topics(name=topic, partitions=partitions)])
        answer = self.ask(ALTER_PARTITION_REASSIGNMENTS, 0, message)
        check(answer.error_code, f"moving {topic}")
        for partition in answer.responses[0].partitions:
            check(partition.error_code, f"moving partition {partition.partition_index} of {topic}")

    def wait_for_topic(self, topic: str, *, create: bool) -> None:
        """Request metadata until every partition has a leader; with `create` the broker creates a missing topic."""

        def has_leaders() -> bool:
            found = self._metadata(topic, create).topics[0]
            return not found.error_code and all(not partition.error_code for partition in found.partitions)

        self._poll(f"topic {topic} has no leader", has_leaders)

    def without_leader(self, topic: str) -> int:
        """Return the number of partitions without a leader."""
        found = self._metadata(topic).topics[0]
        return sum(partition.error_code != 0 for partition in found.partitions)

    def brokers(self) -> set[int]:
        """Return the ids of the brokers that this broker knows."""
        return {broker.node_id for broker in self._metadata(None).brokers}

    def in_sync(self, topic: str) -> list[int]:
        """Return the number of in-sync replicas of each partition, 0 without a leader; empty if the broker does not
        know the topic."""
        found = self._metadata(topic).topics[0]
        return [0 if partition.error_code else len(partition.isr_nodes) for partition in found.partitions]

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition, -1 if there is none; empty if the broker does not know the topic."""
        found = self._metadata(topic).topics[0]
        of = {partition.partition_index: partition.leader_id for partition in found.partitions}
        return [of[partition] for partition in sorted(of)]

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
        """Return the high watermark of partition 0."""
        found = self._latest(topic, 0)
        check(found.error_code, f"asking for the end of {topic}")
        return int(found.offset)

    def _latest(self, topic: str, index: int) -> Any:
        request = LIST_OFFSETS.Request
        partition = request.Topics.Partitions(partition_index=index, timestamp=LATEST)
        wanted = request.Topics(name=topic, partitions=[partition])
        message = request(replica_id=-1, isolation_level=0, topics=[wanted])
        return self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, message).topics[0].partitions[0]

    # Load.

    def produce_once(self, frame: bytes, *, retry: bool = False) -> int:
        """Send one produce request, check the response, and return its length with the size field.

        With `retry`, send it again after an error (there is no leader yet), for a broker that has just started.
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
        """Produce `frame` `count` times, with at most `window` in flight and `together` frames per send; return
        seconds.

        Responses are counted by their length, which is that of the first one. The caller must check that all succeeded,
        by the end offset. `count` and `window` are multiples of `together`.
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
        """Produce `rate` frames per second, without waiting for responses; return the same as `pace`."""
        return self.pace(frame, self.produce_once(frame), rate, seconds)

    def pace(
        self, frame: bytes, reply: int, rate: float, seconds: float, until: int | None = None
    ) -> tuple[list[float], list[float]]:
        """Send `rate` frames per second, each with a response of `reply` bytes; return latencies and delays of the
        sends, in seconds. Sending ends early when the file descriptor `until` is readable.

        A latency is the time from the call that sends a frame until its response was read. Sends do not wait for
        responses, so a slow response does not reduce the load and hide itself. The delay of a send, by the scheduling
        of this client, is not part of the latency.
        """
        count = int(rate * seconds)
        sent_at: list[float] = []
        latencies: list[float] = []
        lateness: list[float] = []
        partial = 0
        watched = [self.socket, *(() if until is None else (until,))]
        gc.disable()  # pauses of the client must not count as latency of the broker
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
                ready, _, _ = select.select(watched, [], [], timeout)
                if until in ready:
                    count, watched = len(sent_at), [self.socket]
                if self.socket in ready:
                    partial += self._receive(self._buffer)
                    now = time.perf_counter()
                    while partial >= reply:
                        partial -= reply
                        latencies.append(now - sent_at[len(latencies)])
                elif not ready and timeout == TIMEOUT:
                    raise Refused(f"no response for {TIMEOUT:.0f} s")
        finally:
            gc.enable()
        return latencies, lateness

    def fetch_all(self, fetch: frames.FetchFrame, batch_bytes: int, batch_records: int, end: int) -> float:
        """Fetch everything from offset 0 to `end`, one request at a time, and discard it; return seconds.

        All batches of the log have `batch_bytes` bytes and `batch_records` records, so the next offset follows from the
        length of the response.
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


def creation(topic: str, replicas: Sequence[Sequence[int]], **settings: str) -> Any:
    """Return a CreateTopics request (CREATE_TOPICS_VERSION) for a topic with these replicas of each partition;
    `settings` have _ instead of . in their names."""
    request = CREATE_TOPICS.Request
    topics = request.Topics
    wanted = topics(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[topics.Assignments(partition_index=at, broker_ids=[*ids]) for at, ids in enumerate(replicas)],
        configs=[topics.Configs(name=name.replace("_", "."), value=value) for name, value in settings.items()],
    )
    return request(topics=[wanted], timeout_ms=int(TIMEOUT * 1000))


def check(code: int, what: str) -> None:
    if code:
        raise Refused(f"{what}: {name_of(code)} ({code})")
