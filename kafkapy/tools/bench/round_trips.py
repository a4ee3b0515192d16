"""The clients of `kafkapy bench latency`: one record at a time, from the producer through the broker to a consumer."""

from __future__ import annotations

import select
import socket
import ssl
import time
from dataclasses import dataclass

from kafkapy.client.administration.admin import Admin
from kafkapy.client.raw import requests
from kafkapy.client.raw.connection import TIMEOUT
from kafkapy.client.raw.requests import FETCH_VERSIONS, PRODUCE_VERSIONS, FetchFrame, ProduceReply
from kafkapy.protocol.apis import FETCH, PRODUCE
from kafkapy.tools.bench.board import Slot
from kafkapy.tools.bench.consuming import LATEST, Feed, Partition
from kafkapy.tools.bench.jobs import CLIENT_ID
from kafkapy.tools.bench.leaders import Place, open_raw, refuse
from kafkapy.tools.bench.producing import Content
from kafkapy.tools.common.errors import ToolError

_LOOK_S = 0.05


@dataclass
class RoundTripJob:
    """Produces one record after the other to the only partition of `place`, while a consumer's Fetch request waits.

    The first duration is from the call that sends the record until the consumer has the record, the second one until
    the producer has the acknowledgement. The next record follows when both have come. `rate` is the most records per
    second; None: no limit.
    """

    place: Place
    content: Content
    acks: int
    records: int | None = None
    rate: float | None = None

    def prepare(self) -> None:
        topic, (partition,) = self.place.topic, self.place.partitions
        with self.place.cluster() as cluster:
            end = Admin(cluster).offsets({(topic, partition): LATEST})[topic, partition].offset
            (node,) = self.place.by_leader(cluster)
            self._producer, self._version = open_raw(cluster, node, PRODUCE, PRODUCE_VERSIONS)
            consumer, version = open_raw(cluster, node, FETCH, FETCH_VERSIONS)
        ((batch, self._bytes),) = self.content.batches(1)[:1]
        self._request = requests.produce(
            topic, batch, self.acks, partition, version=self._version, client=self._producer.client
        )
        self._reply = ProduceReply(topic, self._version)
        frame = FetchFrame(topic, partition=partition, version=version, client=CLIENT_ID)
        self._place = Partition(partition, frame, end, end)
        self._feed = Feed(consumer, topic, [self._place])

    def run(self, slot: Slot) -> None:
        began = time.perf_counter()
        self._feed.ask(everywhere=True)
        done = 0
        while self.records is None or done < self.records:
            now = time.perf_counter()
            due = now if self.rate is None else began + done / self.rate
            if slot.shall_end(now):
                break
            if now < due:
                if self._ready(min(_LOOK_S, due - now)):
                    self._receive()
                continue
            self._one(slot)
            done += 1
        self._feed.connection.close()
        self._producer.close()

    def _one(self, slot: Slot) -> None:
        """Send a record, and wait until the producer has the acknowledgement and the consumer the record."""
        if self._producer.session_ends:
            self._producer.log_in_again()
        sent_at = time.perf_counter()
        self._producer.socket.sendall(self._request)
        offset = -1
        acknowledged = 0.0
        arrivals: list[tuple[int, float]] = []  # (offset after the records that have come, seconds)
        # Other producers may write to the partition, too: the acknowledgement says which offset the record has.
        while not acknowledged or self._place.offset <= offset:
            ready = self._ready(TIMEOUT)
            if not ready:
                raise ToolError(f"the broker has not answered for {TIMEOUT:.0f} s")
            if self._producer.socket in ready:
                offset = self._read_ack()
                acknowledged = time.perf_counter() - sent_at
            if self._feed.socket in ready and self._receive():
                arrivals.append((self._place.offset, time.perf_counter() - sent_at))
        slot.count(1, self._bytes, 1)
        slot.took(next(seconds for end, seconds in arrivals if end > offset))
        slot.acknowledged(acknowledged)

    def _ready(self, seconds: float) -> list[socket.socket]:
        """Return the sockets that have bytes, after at most `seconds`."""
        both = [self._producer.socket, self._feed.socket]
        # TLS may have decrypted bytes, of which the kernel does not know.
        buffered = [each for each in both if isinstance(each, ssl.SSLSocket) and each.pending()]
        return [*buffered] or select.select(both, [], [], seconds)[0]

    def _receive(self) -> bool:
        """Receive what has arrived for the consumer. When a response is complete, send the next request, and return
        True if the response had records."""
        found = self._feed.receive()
        if found is None:
            return False
        self._feed.ask(everywhere=True)
        return found[0] > 0

    def _read_ack(self) -> int:
        """Return the offset of the record that the producer's next response is about."""
        producer = self._producer
        frame = producer.read_frame()
        reply = memoryview(len(frame).to_bytes(4, "big") + frame)
        if len(reply) != self._reply.size or not self._reply.are_good(reply):
            for topic in producer.decode(PRODUCE, self._version, frame).responses:
                for one in topic.partition_responses:
                    refuse(topic.name, one.index, one.error_code)
            raise ToolError("the broker sent a response that belongs to no request")
        return self._reply.base_offset(reply)
