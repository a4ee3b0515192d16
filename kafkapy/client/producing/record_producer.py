"""A producer that collects records into batches and prepares the next batches while others are in flight.

With `idempotent` (the default for acks=-1), a batch is stored only once, even if it is sent again because no response
came: the broker detects the duplicate by its sequence numbers (KIP-98).
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafkapy.client.cluster import BACKOFF_S, Cluster, ClusterClient, Topic, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed, ProduceFailed
from kafkapy.client.producing.outbox import Outbox
from kafkapy.client.producing.partitioner import StickyChoice, partition_of_key
from kafkapy.client.producing.pending_batch import Delivery, PendingBatch
from kafkapy.client.producing.producer_id import ProducerSequences
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.encoded import EncodedBatch

Headers = Sequence[tuple[str, bytes | None]]

ACKS_ALL = -1
METADATA_MAX_AGE_S = 300.0  # Kafka's default of metadata.max.age.ms


class RecordProducer(ClusterClient):
    """A blocking producer for use in one thread. If a batch fails, later calls raise its error.

    `close` drops the records that were not flushed.

    Args:
        cluster: A Cluster, or bootstrap servers.
        acks: Who acknowledges a batch. -1: all in-sync replicas; 1: the leader; 0: nobody, there is no response.
        codec: The compression. 0: none, 1: gzip, 2: snappy, 3: lz4, 4: zstd.
        idempotent: Whether the broker detects duplicates. None: True if acks is -1.
        batch_bytes: The size of a full batch before compression.
        request_bytes: The largest size of a request with more than one batch.
        timeout_s: How long it may take until a full batch is acknowledged, with all retries.
        security: The properties for TLS and login, if `cluster` has bootstrap servers; as for Cluster.
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
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks is {acks}; it can be -1 (all), 0 or 1")
        if idempotent and acks != ACKS_ALL:
            raise ValueError(f"an idempotent producer needs acks=-1 (all), not {acks}")
        super().__init__(cluster, security=security)
        self.transactional_id: str | None = None
        self.acknowledged = 0
        self._codec = codec
        self._idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self._batch_bytes = batch_bytes
        self._request_bytes = request_bytes
        self._timeout_s = timeout_s
        self._sticky = StickyChoice(self.available_partitions)
        self._open: dict[TopicPartition, PendingBatch] = {}
        self._outbox = Outbox(
            self.cluster,
            self,
            acks=acks,
            numbered=self._idempotent,
            request_bytes=request_bytes,
            timeout_s=timeout_s,
        )
        self._counts: dict[str, int] = {}  # topic -> number of partitions
        self._refresh_at = time.monotonic() + METADATA_MAX_AGE_S
        # topic -> its last metadata, its number of partitions, and its partitions with a leader
        self._available: dict[str, tuple[Topic, int, Sequence[int]]] = {}
        self._failed: ProduceFailed | None = None
        self._failure_raised = False
        self._sequences = ProducerSequences()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Flush and close. After an exception in the block, drop the records that are not sent yet."""
        try:
            if kind is None and not self._failure_raised:
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
        """Add one record to the batch of its partition. The batch is sent when it is full or when `flush` is called.

        Return the Delivery of that batch.

        Args:
            partition: None: the partition is chosen by the key's hash, or for a record without a key by the sticky
                partitioner.
            timestamp: In ms since 1970. None: the present time.
        Raises:
            KafkaError: The topic or partition does not exist.
            ProduceFailed: An earlier batch failed. All records that waited to be sent were dropped.
        """
        self._may_send("send")
        count = self.partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            self._look_for(topic, partition)
        moment = int(time.time() * 1000) if timestamp is None else timestamp
        while True:
            if partition is not None:
                where = topic, partition
            elif key is not None:
                where = topic, partition_of_key(key, count)
            else:
                where = topic, self._sticky.current.get(topic, -1)
                if where not in self._open:  # a new batch needs a partition with a leader
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
        """Send records that are already encoded as a batch. Return the batch's Delivery.

        Records that `send` has taken for the same partition are sent before. Blocks while too much data waits to be
        sent. Raises the same errors as `send`.
        """
        self._may_send("send_batch")
        where = batch.topic, batch.partition
        if not 0 <= batch.partition < self.partition_count(batch.topic):
            self._look_for(*where)
        if earlier := self._open.get(where):
            self._close_batch(earlier)
        pending = PendingBatch(where, batch)
        self._close_batch(pending)
        self._make_room()
        return pending.delivery

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. The broker may auto-create the topic if it is missing.

        Partitions that were added are noticed at the first batch that is sent after METADATA_MAX_AGE_S.

        Raises:
            KafkaError: The broker's error for the topic.
            ConnectionFailed: No broker was ever reached; or the topic was not used before, and no broker was reached
                within the time limit.
        """
        if time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + METADATA_MAX_AGE_S
            for known in self._counts:
                self.cluster.topics.pop(known, None)
        if topic in self._counts and topic not in self.cluster.topics:
            return self._counts[topic]  # the outbox refreshes the metadata when it sends
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._counts[topic] = len(self.cluster.topic(topic, create=True).partitions)
                return self._counts[topic]
            except ConnectionFailed:
                if not self._counts or time.monotonic() >= deadline:
                    raise
            time.sleep(BACKOFF_S)

    def available_partitions(self, topic: str, count: int) -> Sequence[int]:
        """Return the partitions of a topic that have a leader according to the last metadata.

        If none of them has a leader, return all `count` partitions. Raise the errors of `partition_count` for a topic
        that was not used before.
        """
        if topic not in self._counts:
            self.partition_count(topic)
        known = self.cluster.topics.get(topic)  # None: the leaders have changed, and the outbox will ask for them
        last = self._available.get(topic)
        if known is not None and (last is None or last[0] is not known or last[1] != count):
            found = known.partitions.values()
            with_leader = [one.index for one in found if one.leader >= 0 and one.index < count]
            last = self._available[topic] = known, count, with_leader or range(count)
        return last[2] if last is not None and last[1] == count else range(count)

    def flush(self) -> None:
        """Send all batches and wait until they are acknowledged (with acks=0: until they are sent).

        Raise ProduceFailed if a batch failed.
        """
        for batch in list(self._open.values()):
            self._close_batch(batch)
        while not self._outbox.is_empty:
            self._outbox.step(wait=True)
        self._raise_failure()

    def _look_for(self, topic: str, partition: int) -> None:
        """Ask a broker for a partition that is not known. Raise KafkaError if the topic has no such partition."""
        self.cluster.topics.pop(topic, None)  # the partition may have been added since
        self.cluster.leader_of(topic, partition)

    def _may_send(self, what: str) -> None:
        """Raise the ProduceFailed of an earlier batch, if there is one.

        `what` is the name of the method being called.
        """
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise the ProduceFailed of an earlier batch, if there is one."""
        if self._failed:
            self._failure_raised = True
            raise self._failed

    def _close_batch(self, batch: PendingBatch) -> None:
        """Pass the batch to the outbox. Further records for the partition go into a new batch."""
        self._open.pop(batch.where, None)
        self._outbox.put(batch)

    def _make_room(self) -> None:
        """Send the batches that may be sent now. While too much data waits to be sent, block.

        Raise ProduceFailed if a batch failed.
        """
        self._outbox.step(wait=False)
        while self._outbox.waiting_bytes > 4 * self._request_bytes:
            self._outbox.step(wait=True)
        self._raise_failure()

    # The methods of ProducerCallbacks.

    def before_sending(self, batches: Sequence[PendingBatch]) -> None:
        """Get a producer id if this producer is idempotent and does not have one yet."""
        if self._idempotent:
            self._sequences.acquire(self.cluster)

    def encode(self, batch: PendingBatch) -> bytes | bytearray:
        """Return the batch's encoded bytes.

        The bytes are encoded once and kept, because the broker detects a retry as a duplicate only if it is identical.
        """
        if batch.data is None:
            if self._idempotent:
                batch.sequence = self._sequences.next_sequence(batch.where, batch.count)
            batch.data = batch.records.build(
                producer_id=self._sequences.current.id,
                producer_epoch=self._sequences.current.epoch,
                base_sequence=batch.sequence,
                transactional=self.transactional_id is not None,
            )
        return batch.data

    def stored(self, batch: PendingBatch, base_offset: int) -> None:
        """Set the base offset in the batch's Delivery, and count its records as acknowledged."""
        if batch.delivery.base_offset < 0:
            batch.delivery.base_offset = base_offset
        batch.delivery.parts -= 1
        self.acknowledged += batch.count

    def refused(self, batch: PendingBatch, error: KafkaError | ClientError) -> None:
        """Fail the producer: later calls raise a ProduceFailed. Records that wait in open batches are dropped.

        The batches that follow a failed batch must not be stored without it.
        """
        plain = self._idempotent and self.transactional_id is None
        if plain and isinstance(error, KafkaError) and error.code == Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            hint = "an older one takes records with acks=1 (kafkapy produce --acks 1), which is not idempotent"
            error = KafkaError(error.code, f"{error.message}; {hint}")
        failure = ProduceFailed(*batch.where, batch.count, error)
        batch.delivery.error = batch.delivery.error or failure
        self._failed = self._failed or failure
        self._open.clear()
