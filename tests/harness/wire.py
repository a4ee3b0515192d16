"""Requests of any API and version, encoded by the project's own schemas (which have golden tests of their own), and
the transactions that tests make of them."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.apis import Api
from kafkapy.protocol.headers import read_response_header, request_frame
from tests.harness.waiting import eventually

TopicPartition = tuple[str, int]

TRANSACTION = 1
NOT_YET = {
    Errors.COORDINATOR_LOAD_IN_PROGRESS,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.LEADER_NOT_AVAILABLE,
}


class Producer(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


class Wire:
    """One connection; requests are answered in order. A request is a message, or its fields as keyword arguments."""

    def __init__(self, bootstrap: str, timeout: float = 30) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api: Api, version: int, message: Any = None, /, **fields: Any) -> Any:
        """Return the response to a request."""
        number = self.send(api, version, message, **fields)
        correlation, response = self.receive(api, version)
        assert correlation == number
        return response

    def send(self, api: Api, version: int, message: Any = None, /, **fields: Any) -> int:
        """Send a request and return its correlation id."""
        number = next(self._numbers)
        if message is None:
            message = api.Request(**fields)
        self.socket.sendall(request_frame(api, version, number, "wire", message))
        return number

    def receive(self, api: Api, version: int) -> tuple[int, Any]:
        """Return the next response, after its correlation id."""
        frame = self.frame()
        correlation, body = read_response_header(frame, api, version)
        return correlation, api.decode_response(frame, version, body)

    def frame(self) -> bytes:
        """Return the bytes of the next response, without its size."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def closed(self) -> bool:
        """Return True if the broker has closed the connection without another response."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            assert more, f"the broker closed the connection after {len(got)} of {count} bytes"
            got += more
        return bytes(got)

    # --- topics and transactions

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic and wait until it is known and its partitions have leaders."""
        api = apis.CREATE_TOPICS
        topics = api.Request.Topics
        settings = [topics.Configs(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = topics(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings)
        (answer,) = self.call(api, 2, topics=[topic], timeout_ms=30_000).topics
        assert answer.error_code == Errors.NONE, answer
        eventually(lambda: self.end_offset(name, partitions - 1) >= 0)

    def end_offset(self, topic: str, partition: int, isolation: int = 0) -> int:
        """Return the offset after the last record that a reader gets, -1 while the partition has no leader."""
        api = apis.LIST_OFFSETS
        asked = api.Request.Topics.Partitions(partition_index=partition, timestamp=-1, current_leader_epoch=-1)
        topics = [api.Request.Topics(name=topic, partitions=[asked])]
        answer = self.call(api, 5, replica_id=-1, isolation_level=isolation, topics=topics)
        return int(answer.topics[0].partitions[0].offset)

    def find_coordinator(self, transactional_id: str) -> None:
        """Make the broker create `__transaction_state` if it is missing, and wait until the coordinator is found."""

        def found() -> bool:
            (one,) = self.call(
                apis.FIND_COORDINATOR, 4, key_type=TRANSACTION, coordinator_keys=[transactional_id]
            ).coordinators
            return bool(one.error_code == Errors.NONE)

        eventually(found)

    def init(
        self, transactional_id: str | None, timeout_ms: int = 60_000, producer: Producer | None = None, version: int = 4
    ) -> Producer | int:
        """Send InitProducerId. Return the producer, or the error code."""
        producer_id, epoch = producer or (-1, -1)
        answer = self.call(
            apis.INIT_PRODUCER_ID,
            version,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return answer.error_code or Producer(answer.producer_id, answer.producer_epoch)

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
        """Return a new producer. Like a client, retry while the coordinator is not ready."""
        self.find_coordinator(transactional_id)

        def begun() -> Producer | None:
            found = self.init(transactional_id, timeout_ms)
            if isinstance(found, Producer):
                return found
            assert found in NOT_YET, found
            return None

        return eventually(begun)

    def add(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition], version: int = 3
    ) -> list[int]:
        """Send AddPartitionsToTxn up to version 3. Return the error code of each partition."""
        api = apis.ADD_PARTITIONS_TO_TXN
        asked = list(partitions)
        answer = self.call(
            api,
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=by_topic(api.Request.V3AndBelowTopics, asked),
        )
        return _codes(answer.results_by_topic_v3_and_below, asked)

    def add_batch(
        self, *transactions: tuple[str, Producer, Sequence[TopicPartition], bool], version: int = 4
    ) -> list[list[int]]:
        """Send one AddPartitionsToTxn request with these transactions. Return the error codes of each one's partitions.

        A transaction is (transactional id, producer, partitions, verify only).
        """
        make = apis.ADD_PARTITIONS_TO_TXN.Request.Transactions
        answer = self.call(
            apis.ADD_PARTITIONS_TO_TXN,
            version,
            transactions=[
                make(
                    transactional_id=name,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=by_topic(make.Topics, partitions),
                )
                for name, producer, partitions, verify_only in transactions
            ],
        )
        assert answer.error_code == Errors.NONE
        found = {one.transactional_id: one.topic_results for one in answer.results_by_transaction}
        return [_codes(found[name], partitions) for name, _, partitions, _ in transactions]

    def add_offsets(self, transactional_id: str, producer: Producer, group: str, version: int = 3) -> int:
        return int(
            self.call(
                apis.ADD_OFFSETS_TO_TXN,
                version,
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                group_id=group,
            ).error_code
        )

    def end(self, transactional_id: str, producer: Producer, commit: bool, version: int = 3) -> int:
        """Send EndTxn. Return the error code."""
        return int(
            self.call(
                apis.END_TXN,
                version,
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                committed=commit,
            ).error_code
        )

    def describe(self, transactional_id: str) -> Any:
        (state,) = self.call(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id]).transaction_states
        return state

    def wait_for_state(self, transactional_id: str, *states: str) -> Any:
        """Wait until the transaction has one of the states. Return its description."""

        def reached() -> Any:
            found = self.describe(transactional_id)
            return found if found.transaction_state in states else None

        return eventually(reached)


def by_topic(make: Any, partitions: Iterable[TopicPartition]) -> list[Any]:
    """Return the topics of a request as messages with `name` and `partitions`."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [make(name=topic, partitions=indexes) for topic, indexes in topics.items()]


def _codes(topics: Collection[Any], partitions: Iterable[TopicPartition]) -> list[int]:
    found = {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in topics
        for one in topic.results_by_partition
    }
    return [found[one] for one in partitions]
