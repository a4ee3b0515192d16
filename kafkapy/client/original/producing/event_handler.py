"""The original producer's event handler: encodes messages, chooses partitions, sends to the leaders, and retries.

Source: kafka.producer.async.DefaultEventHandler of Kafka 0.8.2.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.client.original.encoders import Encoder
from kafkapy.client.original.kafka_07.batch_sender import BatchSender07, Cluster07
from kafkapy.client.original.partitioners import Partitioner
from kafkapy.client.original.producing.batch_sender import BatchSender, KafkaBatchSender, may_retry
from kafkapy.client.original.producing.producer_batch import Item, ProducerBatch, split_into_batches
from kafkapy.client.original.producing.producer_brokers import ZooKeeperBrokers
from kafkapy.client.original.producing.producer_config import ProducerConfig
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage, KeyedMessage, counted
from kafkapy.client.original.znodes.layouts import Layout
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of

log = logging.getLogger(__name__)

GRACE_S = 5.0  # added to the request's own time-out when waiting for the response


class EventHandler(Protocol):
    """The interface of an `event.handler`, which sends the producer's messages.

    A user's class is constructed with `event.handler.props`, or with the producer's properties if those are not set.
    """

    def handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Send messages. Raise FailedToSendMessage, with the lost messages, if not all of them could be sent."""

    def close(self) -> None:
        """Called once, after the last `handle`."""


class DefaultEventHandler:
    """The default event handler. It encodes, partitions and sends messages. For one thread at a time.

    If a message cannot be encoded, an async producer loses only that message; a sync producer sends nothing and raises
    the encoder's exception.

    stats: A counter in which this handler increments `resends` and `serialization_errors`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        encoder: Encoder,
        key_encoder: Encoder,
        partitioner: Partitioner,
        stats: Counter[str],
    ) -> None:
        self._config = config
        self._encoder = encoder
        self._key_encoder = key_encoder
        self._partitioner = partitioner
        self._stats = stats
        self._discovery: ZooKeeperBrokers | None = None
        brokers = config.brokers
        if config.zookeeper:
            self._discovery = ZooKeeperBrokers(
                config.zookeeper,
                config.session_timeout_ms,
                config.connection_timeout_ms,
                config.trust,
                config.security.protocol,
            )
            try:
                brokers = self._discovery.addresses()
            except ClientError:
                self._discovery.close()
                raise
        self._cluster: Cluster | Cluster07
        if config.brokers_07 or (self._discovery is not None and self._discovery.layout is Layout.V07):
            self._cluster = Cluster07(config, self._discovery)
            self._sender: BatchSender = BatchSender07(self._cluster, config)
        else:
            self._cluster = Cluster(
                brokers,
                client_id=config.client_id,
                timeout_s=config.request_timeout_s + GRACE_S,
                old_brokers=True,
                security=config.security,
            )
            self._sender = KafkaBatchSender(self._cluster, config)
        self._refreshed = time.monotonic()

    def close(self) -> None:
        self._cluster.close()
        if self._discovery is not None:
            self._discovery.close()

    def handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Send messages, with retries, and wait until the brokers have acknowledged them.

        With acks=0, wait only until the messages are sent. Raises FailedToSendMessage, with the lost messages, if not
        all of them could be sent.
        """
        self._update_brokers()
        lost: list[KeyedMessage] = []
        reason: Exception | None = None
        items, broken = self._encoded(messages)
        for message, error in broken:
            lost.append(message)
            reason = reason or error
        tries = self._config.retries
        batches = self._placed(items, wait=True)
        while batches:
            again: list[ProducerBatch] = []
            for batch in self._sender.send(batches):
                if tries and may_retry(batch.error):
                    again.append(batch)
                else:
                    self._sender.give_up(batch)
                    lost += [item.message for item in batch.items]
                    reason = reason or batch.error
            if again:
                tries -= 1
                self._stats["resends"] += 1
                log.info("Resending, %d retries left: %s", tries, again[0].error)
                time.sleep(self._config.backoff_s)
                for topic in {batch.where[0] for batch in again}:
                    self._cluster.topics.pop(topic, None)
                self._update_brokers()
            # A batch with sequence numbers has to be resent unchanged. Other messages may be sent to another partition.
            batches = [batch for batch in again if batch.numbers is not None]
            batches += self._placed([item for batch in again if batch.numbers is None for item in batch.items])
        if lost:
            raise FailedToSendMessage(f"{counted(lost)} not stored: {reason}", lost, reason)

    def _encoded(self, messages: Sequence[KeyedMessage]) -> tuple[list[Item], list[tuple[KeyedMessage, Exception]]]:
        """Return the encoded messages, and the messages that can never be stored, each with its error.

        A sync producer's handler raises the encoder's exception instead.
        """
        encode, encode_key, refuses = self._encoder.to_bytes, self._key_encoder.to_bytes, self._sender.refuses
        items: list[Item] = []
        broken: list[tuple[KeyedMessage, Exception]] = []
        for message in messages:
            _, data, key, _ = message
            try:
                value = None if data is None else encode(data)
                item = Item(message, None if key is None else encode_key(key), value)
            except Exception as error:
                self._stats["serialization_errors"] += 1
                if not self._config.is_async:
                    raise
                broken.append((message, error))
                continue
            refusal = refuses(item)
            if refusal is None:
                items.append(item)
            else:
                broken.append((message, refusal))
        return items, broken

    def _placed(self, items: Iterable[Item], *, wait: bool = False) -> list[ProducerBatch]:
        """Choose a partition for each message and return the messages in batches, in order within a partition.

        If no partition can be chosen, the batch has partition -1 and an error. With `wait`, wait for topics that do not
        exist yet.
        """
        misplaced: list[ProducerBatch] = []
        groups: dict[str, dict[int, list[Item]]] = {}
        places: dict[str, tuple[int, int, ClientError | KafkaError | None]] = {}
        choose = self._partitioner.partition
        for item in items:
            topic, _, key, other = item.message
            place = places.get(topic)
            if place is None:
                place = places[topic] = self._look_up(topic, wait)
                groups[topic] = {}
            count, any_partition, error = place
            key = key if other is None else other
            if error is not None:
                partition = -1
            elif key is None:
                partition = any_partition
            else:
                try:
                    partition = choose(key, count)
                    if not 0 <= partition < count:
                        raise ValueError(f"the partitioner chose {partition} for the key {key!r} and 0 to {count - 1}")
                except Exception as failure:
                    misplaced.append(ProducerBatch((topic, -1), [item], failure))
                    continue
            group = groups[topic].get(partition)
            if group is None:
                groups[topic][partition] = [item]
            else:
                group.append(item)
        return misplaced + [
            batch
            for topic, partitions in groups.items()
            for partition, group in partitions.items()
            for batch in split_into_batches((topic, partition), group, places[topic][2])
        ]

    def _look_up(self, topic: str, wait: bool) -> tuple[int, int, ClientError | KafkaError | None]:
        """Return the topic's number of partitions and a random partition with a leader, or an error as the third value.

        With `wait`, wait for a topic that does not exist yet, as the broker may be creating the topic.
        """
        deadline = time.monotonic() + (self._config.request_timeout_s if wait else 0.0)
        while True:
            try:
                known = self._cluster.topics.get(topic)
                if known is None or known.error_code or not known.partitions:
                    self._cluster.refresh([topic], create=True)
                    known = self._cluster.topics.get(topic)
            except (ClientError, KafkaError) as error:
                return 0, -1, error
            available = [] if known is None else [p.index for p in known.partitions.values() if p.leader >= 0]
            if known is not None and available:
                return len(known.partitions), random.choice(available), None
            self._cluster.topics.pop(topic, None)
            code = Errors.LEADER_NOT_AVAILABLE if known is None or not known.error_code else known.error_code
            if not is_retriable(code) or time.monotonic() >= deadline:
                return 0, -1, KafkaError(code, f"topic {topic!r}: {message_of(code)}")
            time.sleep(self._config.backoff_s)

    def _update_brokers(self) -> None:
        """Forget cached leaders when they are too old, or when brokers or topics have changed in ZooKeeper."""
        if self._discovery is not None and self._discovery.has_changed():
            try:
                self._cluster.ask_first(self._discovery.addresses())
            except ClientError as error:  # the known brokers may still work
                log.warning("%s The brokers known before are used.", error)
        now = time.monotonic()
        if now - self._refreshed > self._config.refresh_s:
            self._refreshed = now
            self._cluster.topics.clear()
