"""Parcels to the leaders of their partitions, one request to each broker at a time, and what becomes of them."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kafkapy.client.cluster import Cluster, Topic, TopicPartition
from kafkapy.client.connection import Connection
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.original.event_handler_parcels import Item, Parcel
from kafkapy.client.original.producer_config import ProducerConfig
from kafkapy.client.outbox import TOO_LARGE
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import INIT_PRODUCER_ID, PRODUCE
from kafkapy.record.batch import BatchBuilder
from kafkapy.record.legacy import build_set

BATCHES_SINCE, TIMES_SINCE = 3, 2  # versions of Produce: batches of format 2, messages of format 1


class Leaders(Protocol):
    """The part of Cluster that tells who leads what."""

    topics: dict[str, Topic]

    def refresh(self, topics: Iterable[str]) -> None: ...


class Post:
    """A partition's parcels are stored in order. How they travel is for those below to say."""

    def __init__(self, cluster: Leaders) -> None:
        self._leaders = cluster

    def send(self, parcels: Iterable[Parcel]) -> list[Parcel]:
        """Sends each, after those before it of its partition; those that did not arrive, with their errors. An error
        that may heal stops its partition, another one only the parcel."""
        lanes: dict[TopicPartition, deque[Parcel]] = {}
        for parcel in parcels:
            lanes.setdefault(parcel.where, deque()).append(parcel)
        failed: list[Parcel] = []
        while lanes:
            self._deliver([lane[0] for lane in lanes.values()])
            for where, lane in list(lanes.items()):
                error = lane[0].error
                if isinstance(error, KafkaError) and error.code in TOO_LARGE and len(lane[0].items) > 1:
                    lane.extendleft(reversed(lane.popleft().halves()))  # as Kafka's producer does since KIP-126
                    continue
                if error is not None and heals(error):
                    for parcel in lane:
                        parcel.error = error
                    failed += lanes.pop(where)
                    continue
                if error is not None:
                    failed.append(lane[0])
                    self.give_up(lane[0])
                    for parcel in list(lane)[1:]:
                        parcel.numbers = None  # nothing of them was ever sent
                lane.popleft()
                if not lane:
                    del lanes[where]
        return failed

    def refuses(self, item: Item) -> Exception | None:
        """Why a message can never be stored."""
        return None

    def give_up(self, parcel: Parcel) -> None:
        """It is not tried again."""

    def _deliver(self, parcels: list[Parcel]) -> None:
        """The first parcels of partitions, all at once; each with an error afterwards, or none."""
        by_leader: defaultdict[int, list[Parcel]] = defaultdict(list)
        for parcel in parcels:
            node = self._leader(parcel)
            if node >= 0:
                by_leader[node].append(parcel)
        self._to_leaders(by_leader)

    def _to_leaders(self, by_leader: Mapping[int, list[Parcel]]) -> None:
        """Sends to all of them; each parcel has an error afterwards, or none."""
        raise NotImplementedError

    def _leader(self, parcel: Parcel) -> int:
        """-1, and why is the parcel's error, when there is none."""
        topic, partition = parcel.where
        if partition < 0:  # it had no place, for the reason that is its error
            return -1
        parcel.error = None
        try:
            if topic not in self._leaders.topics:
                self._leaders.refresh([topic])
        except (ClientError, KafkaError) as error:
            parcel.error = error
            return -1
        known = self._leaders.topics.get(topic)
        place = known.partitions.get(partition) if known is not None else None
        if place is None or place.leader < 0:
            code = Errors.LEADER_NOT_AVAILABLE
            parcel.error = KafkaError(code, f"{topic}-{partition}: {message_of(code)}")
            return -1
        return place.leader


class KafkaPost(Post):
    """To brokers of Kafka 0.8 and later. With numbers (`idempotent`) a parcel that comes twice is stored once."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        super().__init__(cluster)
        self._cluster = cluster
        self._config = config
        self._producer: tuple[int, int] | None = None  # its id and epoch
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)

    def give_up(self, parcel: Parcel) -> None:
        """The numbers behind it would not be taken, so they begin anew."""
        if parcel.numbers is not None:
            self._producer = None
            self._sequences.clear()

    def _to_leaders(self, by_leader: Mapping[int, list[Parcel]]) -> None:
        sent: list[tuple[Connection, list[Parcel]]] = []
        for node, of_node in by_leader.items():
            try:
                sent.append((self._request(node, of_node), of_node))
            except (ClientError, KafkaError) as error:
                fail(of_node, error)
        for connection, of_node in sent if self._config.acks else ():
            try:
                _, answer = connection.receive()
                self._note(of_node, answer)
            except (ClientError, KafkaError) as error:
                fail(of_node, error)

    def _request(self, node: int, parcels: list[Parcel]) -> Connection:
        connection = self._cluster.connection(node)
        version = connection.version_of(PRODUCE)
        if self._config.idempotent and self._producer is None:
            self._producer = self._new_producer_id()
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for parcel in parcels:
            topic, partition = parcel.where
            records = self._encoded(parcel, version)
            topics[topic].append(PRODUCE.Request.TopicData.PartitionData(index=partition, records=records))
        request = PRODUCE.Request(
            acks=self._config.acks,
            timeout_ms=int(self._config.request_timeout_s * 1000),
            topic_data=[PRODUCE.Request.TopicData(name=name, partition_data=data) for name, data in topics.items()],
        )
        connection.send(PRODUCE, request, answer=self._config.acks != 0)
        return connection

    def _encoded(self, parcel: Parcel, version: int) -> bytes:
        """Once: one that is sent again must be the same, or the broker would not know its numbers."""
        if parcel.data is not None and self._config.idempotent:
            return parcel.data
        topics = self._config.compressed_topics
        codec = self._config.codec if not topics or parcel.where[0] in topics else 0
        now = int(time.time() * 1000)
        if version < BATCHES_SINCE:
            records = ((now, key, value) for _, key, value in parcel.items)
            parcel.data = build_set(records, 1 if version >= TIMES_SINCE else 0, codec)
            return parcel.data
        builder = BatchBuilder(codec)
        append = builder.append
        for _, key, value in parcel.items:
            append(now, key, value)
        if self._producer is not None and parcel.numbers is None:
            sequence = self._sequences[parcel.where]
            parcel.numbers = (*self._producer, sequence)
            self._sequences[parcel.where] = (sequence + len(parcel.items)) & 0x7FFFFFFF
        producer_id, epoch, sequence = parcel.numbers or (-1, -1, -1)
        parcel.data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return parcel.data

    def _note(self, parcels: list[Parcel], answer: Any) -> None:
        codes = {
            (topic.name, one.index): (one.error_code, one.error_message)
            for topic in answer.responses
            for one in topic.partition_responses
        }
        for parcel in parcels:
            missing = Errors.UNKNOWN_SERVER_ERROR, "the broker's answer leaves this partition out"
            code, told = codes.get(parcel.where, missing)
            if code not in (Errors.NONE, Errors.DUPLICATE_SEQUENCE_NUMBER):
                topic, partition = parcel.where
                parcel.error = KafkaError(code, f"{topic}-{partition}: {told or message_of(code)}")

    def _new_producer_id(self) -> tuple[int, int]:
        request = INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)

        def ask() -> tuple[int, int]:
            response = self._cluster.any_connection().call(INIT_PRODUCER_ID, request)
            if response.error_code:
                raise KafkaError(response.error_code)
            return response.producer_id, response.producer_epoch

        return self._cluster.retry(ask)


def heals(error: Exception | None) -> bool:
    """Whether another try may help."""
    return is_retriable(error.code) if isinstance(error, KafkaError) else isinstance(error, ConnectionFailed)


def fail(parcels: Iterable[Parcel], error: Exception) -> None:
    for parcel in parcels:
        parcel.error = error
