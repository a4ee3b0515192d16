"""What sends a batch of the original producer: encodes, chooses partitions, sends to their leaders, tries again.

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
from kafkapy.client.original.event_handler_07 import Cluster07, Post07
from kafkapy.client.original.event_handler_parcels import Item, Parcel, parcels_of
from kafkapy.client.original.event_handler_post import KafkaPost, Post, heals
from kafkapy.client.original.layouts import Layout
from kafkapy.client.original.partitioners import Partitioner
from kafkapy.client.original.producer_brokers import ZooKeeperBrokers
from kafkapy.client.original.producer_config import ProducerConfig
from kafkapy.client.original.producer_messages import FailedToSendMessage, KeyedMessage, counted
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of

log = logging.getLogger(__name__)

GRACE_S = 5.0  # an answer may take this much longer than the broker was told to take


class EventHandler(Protocol):
    """`event.handler`. One of your own is made with the properties of `event.handler.props`, else the producer's."""

    def handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Sends them; FailedToSendMessage, with those that were lost, when not all could be sent."""

    def close(self) -> None:
        """No more comes."""


class DefaultEventHandler:
    """For one thread at a time. A message that cannot be encoded is lost alone; in a sync producer nothing is sent
    then, and the encoder's exception raised.

    stats: resends, and serialization_errors, are counted in it.
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
                config.zookeeper, config.session_timeout_ms, config.connection_timeout_ms, config.trust
            )
            try:
                brokers = self._discovery.addresses()
            except ClientError:
                self._discovery.close()
                raise
        self._cluster: Cluster | Cluster07
        if config.brokers_07 or (self._discovery is not None and self._discovery.layout is Layout.V07):
            self._cluster = Cluster07(config, self._discovery)
            self._post: Post = Post07(self._cluster, config)
        else:
            self._cluster = Cluster(
                brokers, client_id=config.client_id, timeout_s=config.request_timeout_s + GRACE_S, old_brokers=True
            )
            self._post = KafkaPost(self._cluster, config)
        self._refreshed = time.monotonic()

    def close(self) -> None:
        self._cluster.close()
        if self._discovery is not None:
            self._discovery.close()

    def handle(self, messages: Sequence[KeyedMessage]) -> None:
        """Returns when they are acknowledged (acks=0: sent). FailedToSendMessage: the others are."""
        self._keep_informed()
        lost: list[KeyedMessage] = []
        reason: Exception | None = None
        items, broken = self._encoded(messages)
        for message, error in broken:
            lost.append(message)
            reason = reason or error
        tries = self._config.retries
        parcels = self._placed(items, patient=True)
        while parcels:
            again: list[Parcel] = []
            for parcel in self._post.send(parcels):
                if tries and heals(parcel.error):
                    again.append(parcel)
                else:
                    self._post.give_up(parcel)
                    lost += [item.message for item in parcel.items]
                    reason = reason or parcel.error
            if again:
                tries -= 1
                self._stats["resends"] += 1
                log.info("Sends again, %d tries left: %s", tries, again[0].error)
                time.sleep(self._config.backoff_s)
                for topic in {parcel.where[0] for parcel in again}:
                    self._cluster.topics.pop(topic, None)
                self._keep_informed()
            # A numbered batch has to come again as it was. What has not been one yet may find a better place.
            parcels = [parcel for parcel in again if parcel.numbers is not None]
            parcels += self._placed([item for parcel in again if parcel.numbers is None for item in parcel.items])
        if lost:
            raise FailedToSendMessage(f"{counted(lost)} not stored: {reason}", lost, reason)

    def _encoded(self, messages: Sequence[KeyedMessage]) -> tuple[list[Item], list[tuple[KeyedMessage, Exception]]]:
        encode, encode_key, refuses = self._encoder.to_bytes, self._key_encoder.to_bytes, self._post.refuses
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

    def _placed(self, items: Iterable[Item], *, patient: bool = False) -> list[Parcel]:
        """By partition, in order. What has no place gets partition -1, and why."""
        misplaced: list[Parcel] = []
        groups: dict[str, dict[int, list[Item]]] = {}
        places: dict[str, tuple[int, int, ClientError | KafkaError | None]] = {}
        choose = self._partitioner.partition
        for item in items:
            topic, _, key, other = item.message
            place = places.get(topic)
            if place is None:
                place = places[topic] = self._look_up(topic, patient)
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
                    misplaced.append(Parcel((topic, -1), [item], failure))
                    continue
            group = groups[topic].get(partition)
            if group is None:
                groups[topic][partition] = [item]
            else:
                group.append(item)
        return misplaced + [
            parcel
            for topic, partitions in groups.items()
            for partition, group in partitions.items()
            for parcel in parcels_of((topic, partition), group, places[topic][2])
        ]

    def _look_up(self, topic: str, patient: bool) -> tuple[int, int, ClientError | KafkaError | None]:
        """How many partitions, and one by chance that has a leader; or why not. A topic that is not there may be
        being made, for which the first look waits."""
        deadline = time.monotonic() + (self._config.request_timeout_s if patient else 0.0)
        while True:
            try:
                known = self._cluster.topics.get(topic)
                if known is None or known.error_code or not known.partitions:
                    self._cluster.refresh([topic], create=True)
                    known = self._cluster.topics.get(topic)
            except (ClientError, KafkaError) as error:
                return 0, -1, error
            led = [] if known is None else [p.index for p in known.partitions.values() if p.leader >= 0]
            if known is not None and led:
                return len(known.partitions), random.choice(led), None
            self._cluster.topics.pop(topic, None)
            code = Errors.LEADER_NOT_AVAILABLE if known is None or not known.error_code else known.error_code
            if not is_retriable(code) or time.monotonic() >= deadline:
                return 0, -1, KafkaError(code, f"topic {topic!r}: {message_of(code)}")
            time.sleep(self._config.backoff_s)

    def _keep_informed(self) -> None:
        """Asks for leaders anew when it is time, or ZooKeeper has news of brokers or topics."""
        if self._discovery is not None and self._discovery.has_news():
            try:
                self._cluster.ask_first(self._discovery.addresses())
            except ClientError as error:  # the brokers that are known may do
                log.warning("%s The brokers known before are used.", error)
        now = time.monotonic()
        if now - self._refreshed > self._config.refresh_s:
            self._refreshed = now
            self._cluster.topics.clear()
