"""A producer that gathers records into batches; while some are on their way to the brokers, the next are made.

With `idempotent` (the default for acks=-1) a batch that is sent again because its fate is unknown is stored once: the
broker sees its sequence numbers (KIP-98).
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed, ProduceFailed
from kafkapy.client.outbox import Outbox
from kafkapy.client.partitioner import StickyChoice, partition_of_key
from kafkapy.client.pending_batch import Delivery, PendingBatch
from kafkapy.errors import KafkaError
from kafkapy.protocol.apis import INIT_PRODUCER_ID
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch

Headers = Sequence[tuple[str, bytes | None]]

ACKS_ALL = -1

P = TypeVar("P", bound="RecordProducer")


class RecordProducer:
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
        self.transactional_id: str | None = None
        self.acknowledged = 0
        self._codec = codec
        self._idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self._batch_bytes = batch_bytes
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._sticky = StickyChoice()
        self._open: dict[TopicPartition, PendingBatch] = {}
        self._outbox = Outbox(
            self.cluster,
            self,
            acks=acks,
            numbered=self._idempotent,
            request_bytes=request_bytes,
            timeout_s=timeout_s,
        )
        self._counts: dict[str, int] = {}  # partitions of the topics seen
        self._failed: ProduceFailed | None = None
        self._told = False
        self._producer: tuple[int, int] | None = None  # its id and epoch
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)

    def __enter__(self: P) -> P:
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
        if not 0 <= batch.partition < self.partition_count(batch.topic):
            self.cluster.leader_of(*where)  # raises, saying how many there are
        if earlier := self._open.get(where):
            self._close_batch(earlier)
        pending = PendingBatch(where, batch)
        self._close_batch(pending)
        self._make_room()
        return pending.delivery

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. One that is not there the broker may make, as for `send`.

        Raises:
            KafkaError: what the broker says of the topic.
            ConnectionFailed: no broker was ever reached; or, of a topic that is new here, within the time limit.
        """
        if topic in self._counts and topic not in self.cluster.topics:
            return self._counts[topic]  # the outbox asks anew where it goes
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._counts[topic] = len(self.cluster.topic(topic, create=True).partitions)
                return self._counts[topic]
            except ConnectionFailed:
                if not self._counts or time.monotonic() >= deadline:
                    raise
            time.sleep(BACKOFF_S)

    def flush(self) -> None:
        """Returns when every record is acknowledged (acks=0: sent); raises ProduceFailed if one was not."""
        for batch in list(self._open.values()):
            self._close_batch(batch)
        while not self._outbox.is_empty:
            self._outbox.step(wait=True)
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
        """No more records for it."""
        self._open.pop(batch.where, None)
        self._outbox.put(batch)

    def _make_room(self) -> None:
        """One step; more, until what waits to be sent is little enough."""
        self._outbox.step(wait=False)
        while self._outbox.waiting_bytes > 4 * self._request_bytes:
            self._outbox.step(wait=True)
        self._raise_failure()

    # What the outbox calls.

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        if self._idempotent and self._producer is None:
            self._producer = self._new_producer_id()

    def encode(self, batch: PendingBatch) -> bytes | bytearray:
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
                transactional=self.transactional_id is not None,
            )
        return batch.data

    def stored(self, batch: PendingBatch, base_offset: int) -> None:
        if batch.delivery.base_offset < 0:
            batch.delivery.base_offset = base_offset
        batch.delivery.parts -= 1
        self.acknowledged += batch.count

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Ends the producer: what was to follow this batch must not be stored without it."""
        failure = ProduceFailed(*batch.where, batch.count, error)
        batch.delivery.error = batch.delivery.error or failure
        self._failed = self._failed or failure
        self._open.clear()

    def _new_producer_id(self) -> tuple[int, int]:
        request = INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=2147483647)

        def ask() -> tuple[int, int]:
            response = self.cluster.any_connection().call(INIT_PRODUCER_ID, request)
            if response.error_code:
                raise KafkaError(response.error_code)
            return response.producer_id, response.producer_epoch

        return self.cluster.retry(ask)
