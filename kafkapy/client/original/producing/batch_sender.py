"""Sends batches to the leaders of their partitions, one request to each broker at a time.

The result of each batch is in its `error`.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kafkapy.client.cluster import Cluster, Topic, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.original.producing.producer_batch import Item, ProducerBatch
from kafkapy.client.original.producing.producer_config import ProducerConfig
from kafkapy.client.producing.outbox import TOO_LARGE
from kafkapy.client.producing.producer_id import ProducerSequences
from kafkapy.client.producing.requests import produce_request, produced_partitions
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import PRODUCE
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.legacy import build_set

BATCHES_SINCE, TIMES_SINCE = 3, 2  # first Produce versions with batches of format 2, and with messages of format 1


class Leaders(Protocol):
    """The part of Cluster's interface that looks up the leaders of partitions."""

    topics: dict[str, Topic]

    def refresh(self, topics: Iterable[str]) -> None:
        """Look up the partitions and leaders of the given topics and put them into `topics`."""


class BatchSender:
    """Sends batches to brokers so that each partition's batches are stored in order.

    Subclasses send the requests.
    """

    def __init__(self, cluster: Leaders) -> None:
        self._leaders = cluster

    def send(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """Send each batch after the earlier batches of its partition. Return the failed batches, whose `error` is set.

        After a retriable error, the remaining batches of the partition are not sent and fail with the same error.
        Another error fails only the one batch.
        """
        queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        for batch in batches:
            queues.setdefault(batch.where, deque()).append(batch)
        failed: list[ProducerBatch] = []
        while queues:
            self._deliver([queue[0] for queue in queues.values()])
            for where, queue in list(queues.items()):
                error = queue[0].error
                if isinstance(error, KafkaError) and error.code in TOO_LARGE and len(queue[0].items) > 1:
                    queue.extendleft(reversed(queue.popleft().halves()))  # like Kafka's producer (KIP-126)
                    continue
                if error is not None and may_retry(error):
                    for batch in queue:
                        batch.error = error
                    failed += queues.pop(where)
                    continue
                if error is not None:
                    failed.append(queue[0])
                    self.give_up(queue[0])
                    for batch in list(queue)[1:]:
                        batch.numbers = None  # the batch was never sent, so it may get new sequence numbers
                queue.popleft()
                if not queue:
                    del queues[where]
        return failed

    def refuses(self, item: Item) -> Exception | None:
        """Return an error for a message that the brokers can never store, or None if they can."""
        return None

    def give_up(self, batch: ProducerBatch) -> None:
        """Called for a failed batch that will not be sent again."""

    def _deliver(self, batches: list[ProducerBatch]) -> None:
        """Send one batch for each partition, and set each batch's `error`, to None if it was stored."""
        by_leader: defaultdict[int, list[ProducerBatch]] = defaultdict(list)
        for batch in batches:
            node = self._leader(batch)
            if node >= 0:
                by_leader[node].append(batch)
        self._to_leaders(by_leader)

    def _to_leaders(self, by_leader: Mapping[int, list[ProducerBatch]]) -> None:
        """Send batches, given by the node id of their leader. Set the `error` of those that fail."""
        raise NotImplementedError

    def _leader(self, batch: ProducerBatch) -> int:
        """Return the node id of the leader of a batch's partition.

        If there is no leader, set the batch's error and return -1.
        """
        topic, partition = batch.where
        if partition < 0:  # no partition could be chosen; the error says why
            return -1
        batch.error = None
        try:
            if topic not in self._leaders.topics:
                self._leaders.refresh([topic])
        except (ClientError, KafkaError) as error:
            batch.error = error
            return -1
        known = self._leaders.topics.get(topic)
        place = known.partitions.get(partition) if known is not None else None
        if place is None or place.leader < 0:
            code = Errors.LEADER_NOT_AVAILABLE
            batch.error = KafkaError(code, f"{topic}-{partition}: {message_of(code)}")
            return -1
        return place.leader


class KafkaBatchSender(BatchSender):
    """Sends batches to brokers of Kafka 0.8 and later.

    With `idempotent`, batches have sequence numbers, so that brokers store a duplicate only once.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._config = config
        self._sequences = ProducerSequences()

    def give_up(self, batch: ProducerBatch) -> None:
        """Get a new producer id for later batches, as the broker would refuse the gap in the sequence numbers.

        Does nothing for a batch without sequence numbers.
        """
        if batch.numbers is not None:
            self._sequences.reset()

    def _to_leaders(self, by_leader: Mapping[int, list[ProducerBatch]]) -> None:
        sent: list[tuple[Connection, list[ProducerBatch]]] = []
        try:
            for node, of_node in by_leader.items():
                try:
                    sent.append((self._request(node, of_node), of_node))
                except (ClientError, KafkaError) as error:
                    fail(of_node, error)
            for connection, of_node in sent if self._config.acks else ():
                try:
                    _, answer = connection.receive()
                    self._set_errors(of_node, answer)
                except (ClientError, KafkaError) as error:
                    fail(of_node, error)
        except BaseException:
            for connection, _ in sent:
                if connection.in_flight:  # an unread response would be taken for the next request's
                    connection.close()
            raise

    def _request(self, node: int, batches: list[ProducerBatch]) -> Connection:
        """Send a Produce request with the batches to the broker `node`.

        Return the connection, to receive the response.
        """
        connection = self._cluster.connection(node)
        version = connection.version_of(PRODUCE)
        if self._config.idempotent:
            self._sequences.acquire(self._cluster)
        request = produce_request(
            [(batch.where, self._encoded(batch, version)) for batch in batches],
            acks=self._config.acks,
            timeout_s=self._config.request_timeout_s,
        )
        connection.send(PRODUCE, request, answer=self._config.acks != 0)
        return connection

    def _encoded(self, batch: ProducerBatch, version: int) -> bytes:
        """Return the batch encoded for a Produce version: a record batch, or a message set before version 3.

        With sequence numbers, a retry gets identical bytes, so that the broker detects duplicates.
        """
        if batch.data is not None and self._config.idempotent:
            return batch.data
        topics = self._config.compressed_topics
        codec = self._config.codec if not topics or batch.where[0] in topics else 0
        now = int(time.time() * 1000)
        if version < BATCHES_SINCE:
            records = ((now, key, value) for _, key, value in batch.items)
            batch.data = build_set(records, 1 if version >= TIMES_SINCE else 0, codec)
            return batch.data
        builder = BatchBuilder(codec)
        append = builder.append
        for _, key, value in batch.items:
            append(now, key, value)
        if self._config.idempotent and batch.numbers is None:
            sequence = self._sequences.next_sequence(batch.where, len(batch.items))
            batch.numbers = (*self._sequences.current, sequence)
        producer_id, epoch, sequence = batch.numbers or (-1, -1, -1)
        batch.data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return batch.data

    def _set_errors(self, batches: list[ProducerBatch], answer: Any) -> None:
        """Set the error of each batch that was not stored according to the Produce response `answer`."""
        answers = produced_partitions(answer)
        for batch in batches:
            code, message = Errors.UNKNOWN_SERVER_ERROR, "the broker's response leaves this partition out"
            if (one := answers.get(batch.where)) is not None:
                code, message = one.error_code, one.error_message
            if code not in (Errors.NONE, Errors.DUPLICATE_SEQUENCE_NUMBER):
                topic, partition = batch.where
                batch.error = KafkaError(code, f"{topic}-{partition}: {message or message_of(code)}")


def may_retry(error: Exception | None) -> bool:
    """Return True if the error is retriable, so that sending again may succeed."""
    return is_retriable(error.code) if isinstance(error, KafkaError) else isinstance(error, ConnectionFailed)


def fail(batches: Iterable[ProducerBatch], error: Exception) -> None:
    """Set `error` of each of the batches."""
    for batch in batches:
        batch.error = error
