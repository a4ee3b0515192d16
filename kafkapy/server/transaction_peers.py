"""The calls between brokers for transactions: verifications of produced records, and transaction markers.

Each call is for the broker that leads a partition in the metadata cache. If that is this broker, the call is made
directly, otherwise by AddPartitionsToTxn (verify_only) or WriteTxnMarkers requests.

Source: Kafka's AddPartitionsToTxnManager, TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkapy.coordinator.internal_topic_config import TRANSACTIONS
from kafkapy.errors import Errors
from kafkapy.protocol.apis import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from kafkapy.server.request_queues import RequestQueues

if TYPE_CHECKING:
    from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.record.control import Marker
    from kafkapy.replica.links import Link, LinkError

log = logging.getLogger("kafkapy.server.transactions")

TopicPartition = tuple[str, int]
Done = Callable[[Mapping[TopicPartition, int]], object]

VERIFICATION, MARKERS = "txn-verification-sender", "txn-marker-sender"  # the purposes of links
_VERIFICATION_VERSIONS = (4, 5)


class Peers(Protocol):
    """The links to other brokers, see `kafkapy.server.peers`."""

    def link(self, broker_id: int, purpose: str) -> Link: ...

    def address(self, broker_id: int) -> object | None: ...


class _Question(NamedTuple):
    """A verification: are these partitions in the producer's transaction?"""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    done: Done

    def answer_all(self, code: int) -> None:
        self.answer(dict.fromkeys(self.partitions, code))

    def answer(self, codes: Mapping[TopicPartition, int]) -> None:
        _call(self.done, {one: codes.get(one, Errors.UNKNOWN_SERVER_ERROR) for one in self.partitions})


class Verification:
    """Asks the coordinator of a transaction whether partitions were added to the transaction."""

    def __init__(
        self,
        cache: MetadataCache,
        broker_id: int,
        coordinator: TransactionCoordinator,
        peers: Peers,
        timeout_s: Callable[[], float],
    ) -> None:
        """`timeout_s()` returns request.timeout.ms in seconds."""
        self._cache = cache
        self._broker_id = broker_id
        self._coordinator = coordinator
        self._peers = peers
        self._timeout_s = timeout_s
        self._queues = RequestQueues(self._send)

    def ask(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition], done: Done
    ) -> None:
        """Call `done` with an error code for each partition, which is NONE if the partition was added to the
        transaction: at once, or later on any thread. See TransactionCoordinator.verify.

        The code is COORDINATOR_NOT_AVAILABLE if the coordinator is not alive, NETWORK_EXCEPTION if it does not answer.
        If it is a Kafka before 3.6, which cannot be asked, the partitions are not verified and the code is NONE.
        """
        index = self._coordinator.shards.partition_for(transactional_id)
        leader = _leader_elsewhere(self._cache, self._broker_id, TRANSACTIONS, index)
        if leader is None:
            self._coordinator.verify(transactional_id, producer_id, epoch, partitions, done)
        elif self._peers.address(leader) is None:
            done(dict.fromkeys(partitions, Errors.COORDINATOR_NOT_AVAILABLE))
        else:
            self._queues.add(leader, _Question(transactional_id, producer_id, epoch, partitions, done))

    def _send(self, broker_id: int, questions: list[_Question], done: Callable[[], None]) -> None:
        asked = _latest(questions)
        make = ADD_PARTITIONS_TO_TXN.Request
        request = make(
            transactions=[
                make.Transactions(
                    transactional_id=transactional_id,
                    producer_id=same[0].producer_id,
                    producer_epoch=same[0].epoch,
                    verify_only=True,
                    topics=_topics(
                        (one for question in same for one in question.partitions),
                        lambda name, indexes: make.Transactions.Topics(name=name, partitions=indexes),
                    ),
                )
                for transactional_id, same in asked.items()
            ]
        )

        def answered(response: Any, error: LinkError | None) -> None:
            try:
                if error is not None:
                    _unanswered(error, [question for same in asked.values() for question in same])
                else:
                    _answer(response, asked)
            finally:
                done()

        self._peers.link(broker_id, VERIFICATION).ask(
            ADD_PARTITIONS_TO_TXN,
            request,
            answered,
            timeout_s=self._timeout_s(),
            versions=_VERIFICATION_VERSIONS,
        )


def _latest(questions: Iterable[_Question]) -> dict[str, list[_Question]]:
    """Return the questions of the latest producer of each transactional id, and answer those of fenced producers.

    A request names each transactional id once. Kafka asks only the last of several questions of the same producer, and
    answers the others with NETWORK_EXCEPTION, so that the client sends the records again. Here all are asked together.
    """
    asked: dict[str, list[_Question]] = {}
    for question in questions:
        same = asked.setdefault(question.transactional_id, [])
        producer = (question.producer_id, question.epoch)
        before = (same[0].producer_id, same[0].epoch) if same else producer
        if producer < before:
            question.answer_all(Errors.INVALID_PRODUCER_EPOCH)
            continue
        if producer > before:
            for one in same:
                one.answer_all(Errors.INVALID_PRODUCER_EPOCH)
            same.clear()
        same.append(question)
    return asked


def _unanswered(error: LinkError, questions: Sequence[_Question]) -> None:
    if error.unsupported:
        log.warning("the records of %d transactions are not verified: %s", len(questions), error)
    else:
        log.warning("the records of %d transactions cannot be verified now: %s", len(questions), error)
    for question in questions:
        question.answer_all(Errors.NONE if error.unsupported else Errors.NETWORK_EXCEPTION)


def _answer(response: Any, asked: Mapping[str, list[_Question]]) -> None:
    if response.error_code != Errors.NONE:
        # A producer cannot correct the missing right of this broker.
        denied = response.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        code = Errors.INVALID_TXN_STATE if denied else response.error_code
        log.error("the coordinator refuses verifications: error %d", response.error_code)
        for same in asked.values():
            for question in same:
                question.answer_all(code)
        return
    found = {
        one.transactional_id: {
            (topic.name, part.partition_index): part.partition_error_code
            for topic in one.topic_results
            for part in topic.results_by_partition
        }
        for one in response.results_by_transaction
    }
    for transactional_id, same in asked.items():
        codes = found.get(transactional_id, {})
        for question in same:
            question.answer(codes)


class _Marking(NamedTuple):
    """A marker that goes to some partitions of one broker."""

    marker: Marker
    partitions: Sequence[TopicPartition]
    done: Done
    is_needed: Callable[[], bool]


class MarkerSender:
    """Sends transaction markers to the leaders of partitions, and checks whether partitions still exist."""

    def __init__(
        self, cache: MetadataCache, broker_id: int, local: LocalMarkers, peers: Peers, timeout_s: Callable[[], float]
    ) -> None:
        """`local` writes the markers of partitions that this broker leads. `timeout_s()` returns request.timeout.ms in
        seconds."""
        self._cache = cache
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_s
        self._queues = RequestQueues(self._send)

    def exists(self, topic: str, index: int) -> bool:
        """Return False if the partition is known to be deleted, so that it needs no transaction marker."""
        return self._cache.has(topic, index) or not self._cache.is_complete

    def write(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        done: Done,
        is_needed: Callable[[], bool],
    ) -> None:
        """Write a transaction marker to each partition. Call `done` one or more times, on any thread, each time with
        the error codes of some of the partitions. A partition without a leader that is alive gets
        NOT_LEADER_OR_FOLLOWER.

        `is_needed()` is called before a marker is sent. If it returns False, because another broker is the coordinator
        by now, nothing is sent, and `done` is not called.
        """
        by_leader: dict[int | None, list[TopicPartition]] = {}
        for one in partitions:
            by_leader.setdefault(_leader_elsewhere(self._cache, self._broker_id, *one), []).append(one)
        for leader, led in by_leader.items():
            if leader is None:
                self._local.write(marker, led, done)
            elif self._peers.address(leader) is None:
                done(dict.fromkeys(led, Errors.NOT_LEADER_OR_FOLLOWER))
            else:
                self._queues.add(leader, _Marking(marker, led, done, is_needed))

    def _send(self, broker_id: int, markings: list[_Marking], done: Callable[[], None]) -> None:
        markings = [one for one in markings if one.is_needed()]
        if not markings:
            done()
            return
        make = WRITE_TXN_MARKERS.Request

        def answered(response: Any, error: LinkError | None) -> None:
            try:
                if error is not None:
                    log.info(
                        "broker %d has not written the markers of %d transactions: %s", broker_id, len(markings), error
                    )
                codes = {} if error is not None else _codes(response)
                missing = Errors.NOT_LEADER_OR_FOLLOWER if error is not None else Errors.UNKNOWN_SERVER_ERROR
                for marker, partitions, written, _ in markings:
                    found = codes.get(marker.producer_id, {})
                    _call(written, {one: found.get(one, missing) for one in partitions})
            finally:
                done()

        self._peers.link(broker_id, MARKERS).ask(
            WRITE_TXN_MARKERS,
            make(
                markers=[
                    make.Markers(
                        producer_id=marker.producer_id,
                        producer_epoch=marker.producer_epoch,
                        transaction_result=marker.commit,
                        topics=_topics(
                            partitions,
                            lambda name, indexes: make.Markers.Topics(name=name, partition_indexes=indexes),
                        ),
                        coordinator_epoch=marker.coordinator_epoch,
                    )
                    for marker, partitions, _, _ in markings
                ]
            ),
            answered,
            timeout_s=self._timeout_s(),
        )


class LocalMarkers(Protocol):
    """Writes markers to partitions that this broker leads, see `kafkapy.replica.markers`."""

    def write(self, marker: Marker, partitions: Sequence[TopicPartition], done: Done) -> None: ...


def _codes(response: Any) -> dict[int, dict[TopicPartition, int]]:
    """Return the error codes of the partitions, by producer id. A transactional id has one producer id, and at most one
    transaction that is being completed."""
    return {
        one.producer_id: {
            (topic.name, part.partition_index): part.error_code for topic in one.topics for part in topic.partitions
        }
        for one in response.markers
    }


def _call(done: Done, codes: Mapping[TopicPartition, int]) -> None:
    """Call `done`. An exception is logged, because the others in the same request must be answered too."""
    try:
        done(codes)
    except Exception:
        log.exception("the answer of another broker cannot be handled")


def _topics(partitions: Iterable[TopicPartition], make: Callable[[str, list[int]], Any]) -> list[Any]:
    """Return the topics of a request, in which each partition is named once."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(partitions):
        by_topic.setdefault(topic, []).append(index)
    return [make(topic, indexes) for topic, indexes in by_topic.items()]


def _leader_elsewhere(cache: MetadataCache, broker_id: int, topic: str, index: int) -> int | None:
    """Return the broker that leads the partition in the metadata cache, NO_LEADER (-1) if there is none. Return None if
    it is this broker, or if the cache does not know the partition yet."""
    leader = cache.leader(topic, index)
    return None if leader is None or leader.id == broker_id else leader.id
