"""The clients of `kafkapy bench produce`."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from math import ceil

from kafkapy.client.raw import requests
from kafkapy.client.raw.connection import TIMEOUT, RawConnection
from kafkapy.client.raw.requests import PRODUCE_VERSIONS, ProduceReply
from kafkapy.protocol.apis import LIST_OFFSETS, PRODUCE
from kafkapy.tools.bench.board import Slot
from kafkapy.tools.bench.leaders import Place, open_raw, refuse
from kafkapy.tools.bench.pipeline import Lane, drive

MOST_FOR_PAYLOADS = 100
_LETTERS = bytes(string.ascii_uppercase[byte % 26].encode()[0] for byte in range(256))
_LIST_OFFSETS_VERSION = 1


@dataclass(frozen=True)
class Content:
    """The content of records. Values are `payloads` in turn or, without payloads, random capital letters, as in Kafka's
    tool. `keys` is the number of different keys; 0: records have no key."""

    record_size: int
    payloads: tuple[bytes, ...] = ()
    keys: int = 0
    key_size: int = 16
    codec: int = 0

    @property
    def longest(self) -> int:
        """The bytes of the longest key and value together."""
        values = max(map(len, self.payloads)) if self.payloads else self.record_size
        return values + (self.key_size if self.keys else 0)

    def variants(self, records: int) -> int:
        """Return the number of different batches of `records` records: enough for all keys, and for the payloads, but
        at most MOST_FOR_PAYLOADS for the payloads."""
        return max(1, ceil(self.keys / records), min(MOST_FOR_PAYLOADS, ceil(len(self.payloads) / records)))

    def batches(self, records: int) -> list[tuple[bytes, int]]:
        """Return the encoded batches, and the bytes of the keys and values in each."""
        chance = random.Random(7)
        values = cycle(self.payloads) if self.payloads else self._letters(chance)
        keys: Iterator[bytes | None] = cycle([None])
        if self.keys:
            keys = cycle([b"%0*d" % (self.key_size, number) for number in range(self.keys)])
        found = []
        for _ in range(self.variants(records)):
            these, its_keys = list(islice(values, records)), list(islice(keys, records))
            size = sum(map(len, these)) + sum(len(key) for key in its_keys if key is not None)
            found.append((requests.batch(these, self.codec, its_keys), size))
        return found

    def _letters(self, chance: random.Random) -> Iterator[bytes]:
        while True:
            yield chance.randbytes(self.record_size).translate(_LETTERS)


@dataclass
class ProduceJob:
    """Produces batches of `records` records to the partitions of `place` in turn.

    `window` is the number of requests in flight to each broker. `requests` is the most requests to send; None: no
    limit. `rate` is the requests per second; None: as fast as possible.
    """

    place: Place
    content: Content
    records: int
    acks: int
    window: int
    requests: int | None = None
    rate: float | None = None

    def prepare(self) -> None:
        batches = self.content.batches(self.records)
        self._bytes = sum(size for _, size in batches) / len(batches)
        with self.place.cluster() as cluster:
            self._lanes = [
                self._lane(*open_raw(cluster, node, PRODUCE, PRODUCE_VERSIONS), partitions, batches)
                for node, partitions in self.place.by_leader(cluster).items()
            ]

    def _lane(
        self, connection: RawConnection, version: int, partitions: Sequence[int], batches: list[tuple[bytes, int]]
    ) -> Lane:
        topic = self.place.topic
        frames = [
            requests.produce(topic, batch, self.acks, partition, version=version, client=connection.client)
            for batch, _ in batches
            for partition in partitions
        ]
        reply = ProduceReply(topic, version)
        explain = partial(self._explain, connection, version)
        return Lane(connection, frames, self.window, reply.size if self.acks else 0, reply.are_good, explain)

    def _explain(self, connection: RawConnection, version: int, frame: bytes) -> None:
        for topic in connection.decode(PRODUCE, version, frame).responses:
            for one in topic.partition_responses:
                refuse(topic.name, one.index, one.error_code)

    def run(self, slot: Slot) -> None:
        def replied(count: int) -> None:
            slot.count(count * self.records, round(count * self._bytes), count)

        drive(self._lanes, slot, replied, requests=self.requests, rate=self.rate)
        if not self.acks:  # the response to a later request says that the broker has handled all before it
            for lane in self._lanes:
                lane.socket.settimeout(TIMEOUT)  # the kernel's time-out does not end a wait for TLS
                lane.connection.ask(LIST_OFFSETS, _LIST_OFFSETS_VERSION, LIST_OFFSETS.Request(replica_id=-1, topics=[]))
        for lane in self._lanes:
            lane.connection.close()
