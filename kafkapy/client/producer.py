"""A producer that gathers records into batches and keeps one request to each broker on its way.

One request at a time a broker keeps order without further rules, and while it is on its way the next batches are
made. With `idempotent` (the default for acks=-1) a batch that is sent again because its fate is unknown is stored
once: the broker sees its sequence numbers (KIP-98).
"""

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import BrokerTimedOut, ClientError, ConnectionFailed, ProduceFailed
from kafkapy.client.partitioner import StickyChoice, partition_of_key
from kafkapy.client.pending_batch import Delivery, PendingBatch
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import INIT_PRODUCER_ID, PRODUCE
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch

Headers = Sequence[tuple[str, bytes | None]]

ACKS_ALL = -1


class Producer:
    """Blocking, for one thread.

    Args:
        cluster: a Cluster, or bootstrap servers.
        acks: -1 all in-sync replicas, 1 the leader, 0 nobody answers.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        idempotent: None means yes where acks is -1.
        batch_bytes: a batch is closed when its records, not compressed, reach this.
        request_bytes: how much goes into one request, if it is more than one batch.
        timeout_s: how long a closed batch may take to be acknowledged, with all retries.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        *,
        acks: int = ACKS_ALL,
        codec: int = 0,
        idempotent: bool | None = None,
        batch_bytes: int = 256 * 1024,
        request_bytes: int = 1024 * 1024,
        timeout_s: float = 60.0,
    ) -> None:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks is {acks}; it can be -1 (all), 0 or 1")
        if idempotent and acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        self._owns_cluster = not isinstance(cluster, Cluster)
        self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self.acknowledged = 0
        self._acks = acks
        self._codec = codec
        self._idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self._batch_bytes = batch_bytes
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._sticky = StickyChoice()
        self._open: dict[TopicPartition, PendingBatch] = {}
        self._ready: defaultdict[TopicPartition, deque[PendingBatch]] = defaultdict(deque)
        self._ready_bytes = 0
        self._on_the_way: dict[int, list[PendingBatch]] = {}
        self._pause_until = 0.0
        self._failed: ProduceFailed | None = None
        self._told = False
        self._transactional_id: str | None = None
        self._producer: tuple[int, int] | None = None  # its id and epoch
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Sends what is left; after an exception in the block it is dropped."""
        try:
            if kind is None and not self._told:
                self.flush()
        finally:
            self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Takes one record; it leaves when its batch is full, or at `flush`.

        Args:
            partition: None: by the key's hash; without a key one that changes with each batch.
            timestamp: in ms since 1970; None: now.
        Returns: the delivery of the batch that it is in.
        Raises:
            KafkaError: the topic or the partition is not there.
            ProduceFailed: an earlier batch was not stored; the records still waiting are dropped.
        """
        self._raise_failure()
        count = self.partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            self.cluster.leader_of(topic, partition)  # raises, saying how many there are
        moment = int(time.time() * 1000) if timestamp is None else timestamp
        while True:
            if partition is not None:
                where = topic, partition
            elif key is not None:
                where = topic, partition_of_key(key, count)
            else:
                where = topic, self._sticky.partition(topic, count)
            batch = self._open.get(where)
            if batch is None:
                batch = self._open[where] = PendingBatch(where, BatchBuilder(self._codec, self._batch_bytes))
            assert isinstance(batch.records, BatchBuilder)
            if batch.records.append(moment, key, value, headers):
                return batch.delivery
            self._close_batch(batch)
            self._sticky.batch_is_full(*where, count)
            self._make_room()

    def send_batch(self, batch: EncodedBatch) -> Delivery:
        """Takes records that are encoded already. They go after what `send` has taken for their partition.

        Returns when there is room for them among what waits to be sent.
        Raises: as `send`.
        """
        self._raise_failure()
        where = batch.topic, batch.partition
        self.cluster.topic(batch.topic, create=True)
        self.cluster.leader_of(*where)  # raises where there is no such partition
        if earlier := self._open.get(where):
            self._close_batch(earlier)
        pending = PendingBatch(where, batch)
        self._close_batch(pending)
        self._make_room()
        return pending.delivery

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. One that is not there the broker may make, as for `send`."""
        return len(self.cluster.topic(topic, create=True).partitions)

    def flush(self) -> None:
        """Returns when every record is acknowledged (acks=0: sent); raises ProduceFailed if one was not."""
        for batch in list(self._open.values()):
            self._close_batch(batch)
        while self._ready_bytes or self._on_the_way:
            self._move(wait=True)
        self._raise_failure()

    def close(self) -> None:
        """Drops what was not flushed."""
        if self._owns_cluster:
            self.cluster.close()

    def _raise_failure(self) -> None:
        if self._failed:
            self._told = True
            raise self._failed

    def _close_batch(self, batch: PendingBatch) -> None:
        self._open.pop(batch.where, None)
        batch.closed_at = time.monotonic()
        self._ready[batch.where].append(batch)
        self._ready_bytes += batch.size

    def _make_room(self) -> None:
        """One step; more, until what waits to be sent is little enough."""
        self._move(wait=False)
        while self._ready_bytes > 4 * self._request_bytes:
            self._move(wait=True)

    def _move(self, *, wait: bool) -> None:
        """One step: takes answers that are there, sends what may leave; with `wait` blocks for one answer."""
        for node in list(self._on_the_way):
            if self.cluster.connection(node).answer_is_here():
                self._take_answer(node)
        self._send_ready()
        if not wait:
            return
        if self._on_the_way:
            self._take_answer(next(iter(self._on_the_way)))
            self._send_ready()
        elif (pause := self._pause_until - time.monotonic()) > 0:
            time.sleep(pause)

    def _send_ready(self) -> None:
        if time.monotonic() < self._pause_until:
            return
        try:
            for node, batches in self._batches_by_leader().items():
                self._send(node, batches)
        except (ClientError, KafkaError) as error:
            # No leader is known: wait a moment, ask again, until the oldest batch has had its time.
            self._again_later(error)

    def _batches_by_leader(self) -> dict[int, list[PendingBatch]]:
        """The first waiting batch of each partition whose leader has no request on its way, within the size."""
        chosen: defaultdict[int, list[PendingBatch]] = defaultdict(list)
        sizes: defaultdict[int, int] = defaultdict(int)
        for (topic, partition), waiting in self._ready.items():
            if not waiting:
                continue
            node = self.cluster.leader_of(topic, partition)
            if node in self._on_the_way or (chosen[node] and sizes[node] + waiting[0].size > self._request_bytes):
                continue
            chosen[node].append(waiting[0])
            sizes[node] += waiting[0].size
        return {node: batches for node, batches in chosen.items() if batches}

    def _send(self, node: int, batches: list[PendingBatch]) -> None:
        if self._idempotent and self._producer is None:
            self._producer = self._new_producer_id()
        self._before_sending(batches)
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for batch in batches:
            topic, partition = batch.where
            topics[topic].append(PRODUCE.Request.TopicData.PartitionData(index=partition, records=self._bytes(batch)))
        request = PRODUCE.Request(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=int(self.cluster.timeout_s * 1000),
            topic_data=[PRODUCE.Request.TopicData(name=name, partition_data=data) for name, data in topics.items()],
        )
        self.cluster.connection(node).send(PRODUCE, request, answer=self._acks != 0)
        for batch in batches:
            self._ready[batch.where].popleft()
            self._ready_bytes -= batch.size
        self._on_the_way[node] = batches
        if self._acks == 0:
            for batch in self._on_the_way.pop(node):
                self._stored(batch, -1)

    def _before_sending(self, batches: list[PendingBatch]) -> None:
        """The place to tell somebody where records are about to go; what it raises is as if sending failed."""

    def _bytes(self, batch: PendingBatch) -> bytes | bytearray:
        """Encoded once: a batch sent again must be the same, or the broker would not know it."""
        if batch.data is None:
            producer_id, epoch = self._producer or (-1, -1)
            if self._idempotent:
                batch.sequence = self._sequences[batch.where]
                self._sequences[batch.where] = (batch.sequence + batch.count) & 0x7FFFFFFF
            batch.data = batch.records.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.sequence,
                transactional=self._transactional_id is not None,
            )
        return batch.data

    def _new_producer_id(self) -> tuple[int, int]:
        request = INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=2147483647)

        def ask() -> tuple[int, int]:
            response = self.cluster.any_connection().call(INIT_PRODUCER_ID, request)
            if response.error_code:
                raise KafkaError(response.error_code)
            return response.producer_id, response.producer_epoch

        return self.cluster.retry(ask)

    def _take_answer(self, node: int) -> None:
        batches = self._on_the_way.pop(node)
        try:
            _, response = self.cluster.connection(node).receive(self.cluster.timeout_s + 5)
        except (ClientError, ValueError) as error:
            # The batches may have been stored. With sequence numbers, or when the caller accepts repeats in place
            # of losses (as Kafka's producer does), they are sent again.
            reason = error if isinstance(error, ClientError) else BrokerTimedOut(str(error))
            for batch in reversed(batches):
                self._put_back(batch, reason)
            return
        answers: dict[TopicPartition, Any] = {
            (t.name, p.index): p for t in response.responses for p in t.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.where)
            if answer is None:
                missing = "the broker's answer leaves this partition out"
                self._refused(batch, KafkaError(Errors.UNKNOWN_SERVER_ERROR, missing))
                continue
            code = answer.error_code
            if code in (Errors.NONE, Errors.DUPLICATE_SEQUENCE_NUMBER):
                self._stored(batch, answer.base_offset)
            elif is_retriable(code):
                self._put_back(batch, KafkaError(code))
            else:
                self._refused(batch, KafkaError(code, answer.error_message or message_of(code)))

    def _stored(self, batch: PendingBatch, base_offset: int) -> None:
        batch.delivery.base_offset = base_offset
        batch.delivery.done = True
        self.acknowledged += batch.count

    def _put_back(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        self._ready[batch.where].appendleft(batch)
        self._ready_bytes += batch.size
        self._again_later(error)

    def _again_later(self, error: KafkaError | ClientError) -> None:
        self._pause_until = time.monotonic() + BACKOFF_S
        waiting = [batches[0] for batches in self._ready.values() if batches]
        for batch in waiting:
            self.cluster.topics.pop(batch.where[0], None)  # leaders may have changed: ask anew
        oldest = min(waiting, key=lambda batch: batch.closed_at, default=None)
        heals = is_retriable(error.code) if isinstance(error, KafkaError) else isinstance(error, ConnectionFailed)
        if oldest is not None and (not heals or time.monotonic() - oldest.closed_at > self._timeout_s):
            self._ready[oldest.where].popleft()
            self._ready_bytes -= oldest.size
            self._refused(oldest, error)

    def _refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Ends the producer: what was to follow this batch must not be stored without it."""
        failure = ProduceFailed(*batch.where, batch.count, error)
        batch.delivery.error = failure
        batch.delivery.done = True
        self._failed = self._failed or failure
        self._drop()

    def _drop(self) -> None:
        """Forgets what has not been sent."""
        self._ready.clear()
        self._open.clear()
        self._ready_bytes = 0
