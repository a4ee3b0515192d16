"""AddPartitionsToTxn (versions 0 to 5) and AddOffsetsToTxn (versions 0 to 4): add partitions to a transaction, or
verify that they are part of it (KIP-98, KIP-890).

Source: KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest.

Differences from Kafka: an AddPartitionsToTxn request without transactions (version 4 or later) gets an empty response.
Kafka sends no response.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.coordinator.internal_topic_config import GROUPS
from kafkapy.errors import Errors
from kafkapy.metadata.topics import is_internal
from kafkapy.protocol.apis import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN
from kafkapy.server.admission import CLUSTER, Action
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Check,
    Right,
)
from kafkapy.server.handlers.transactions import known_to

if TYPE_CHECKING:
    from kafkapy.server.services import Services

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, int]

BATCHED_SINCE = 4  # of AddPartitionsToTxn: several transactions, sent by brokers that verify produced records

# A request with more partitions takes milliseconds, too long for a network thread; it runs on the disk pool.
MOST_INLINE = 500


def _needed(broker: Services, call: Call) -> list[Action]:
    request = call.request
    if call.version >= BATCHED_SINCE:
        return [Action("CLUSTER_ACTION", "CLUSTER", CLUSTER)]
    names = [topic.name for topic in request.v3_and_below_topics if not is_internal(topic.name)]
    transactional_id = Action("WRITE", "TRANSACTIONAL_ID", request.v3_and_below_transactional_id)
    return [transactional_id, *(Action("WRITE", "TOPIC", name) for name in names)]


@serves(
    ADD_PARTITIONS_TO_TXN,
    checks=[
        Check(
            Right("WRITE", "TRANSACTIONAL_ID"),
            TRANSACTIONAL_ID_DENIED + " on each partition",
            only="versions 0 to 3, of clients",
        ),
        Check(
            Right("WRITE", "TOPIC"),
            TOPIC_DENIED + " for its partitions; OPERATION_NOT_ATTEMPTED for all others",
            only="versions 0 to 3, of clients",
        ),
        Check(Right("CLUSTER_ACTION", "CLUSTER"), CLUSTER_DENIED, only="version 4 and later, of brokers"),
    ],
    authorizes=_needed,
    in_order=True,
)
def add_partitions_to_txn(broker: Services, call: Call, request: Any) -> Any:
    """Handle AddPartitionsToTxn: add partitions to transactions, or verify that they were added. Return an error code
    for each partition."""
    if call.is_denied("CLUSTER"):
        return ADD_PARTITIONS_TO_TXN.Response(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED)
    if call.version < BATCHED_SINCE:
        count = sum(len(topic.partitions) for topic in request.v3_and_below_topics)
        begin = partial(_begin_one, broker, call, request)
    else:
        count = sum(1 + sum(len(topic.partitions) for topic in one.topics) for one in request.transactions)
        begin = partial(_begin_all, broker, call, request)
    return answered(call, begin, broker.disk_pool if count > MOST_INLINE else None)


def _begin_one(broker: Services, call: Call, request: Any, reply: Callable[[Any], None]) -> None:
    make = ADD_PARTITIONS_TO_TXN.Response
    partitions = _partitions(request.v3_and_below_topics)

    def done(codes: Codes) -> None:
        reply(make(results_by_topic_v3_and_below=_results(make.ResultsByTopicV3AndBelow, codes)))

    if call.is_denied("TRANSACTIONAL_ID"):
        done(dict.fromkeys(partitions, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    _add_partitions(broker, call, request.v3_and_below_transactional_id, producer, partitions, done)


def _begin_all(broker: Services, call: Call, request: Any, reply: Callable[[Any], None]) -> None:
    make = ADD_PARTITIONS_TO_TXN.Response
    results = _Results(len(request.transactions), lambda results: reply(make(results_by_transaction=results)))
    for number, one in enumerate(request.transactions):
        partitions = _partitions(one.topics)
        done = partial(_store_result, results, number, one.transactional_id)
        if one.verify_only:
            _verify(broker, one, partitions, done)
        else:
            producer = (one.producer_id, one.producer_epoch)
            _add_partitions(broker, call, one.transactional_id, producer, partitions, done)
    results.begin()


def _add_partitions(
    broker: Services,
    call: Call,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: list[TopicPartition],
    done: Callable[[Codes], object],
) -> None:
    """Add all partitions to the transaction, or none, and call `done` with an error code for each partition.

    A client may not add internal topics: it adds its offsets with AddOffsetsToTxn. Other brokers may name internal
    topics.
    """
    refused = _refused(broker, partitions, call.version < BATCHED_SINCE, call.denied_names("TOPIC"))
    if refused:
        done(refused)
        return
    broker.transactions.add_partitions(
        transactional_id,
        *producer,
        partitions,
        lambda code: done(dict.fromkeys(partitions, known_to(call, code))),
    )


def _verify(broker: Services, one: Any, partitions: list[TopicPartition], done: Callable[[Codes], object]) -> None:
    refused = _refused(broker, partitions, False)
    if refused:
        done(refused)
    else:
        broker.transactions.verify(one.transactional_id, one.producer_id, one.producer_epoch, partitions, done)


def _refused(
    broker: Services, partitions: list[TopicPartition], is_client: bool, denied: Collection[str] = ()
) -> Codes:
    """Return an error code for every partition if some of the partitions cannot be added to a transaction, {} if all
    can. `denied` are topics that the principal may not write."""
    codes: dict[TopicPartition, int] = {}
    for topic, index in partitions:
        if topic in denied or (is_client and is_internal(topic)):
            codes[topic, index] = Errors.TOPIC_AUTHORIZATION_FAILED
        elif not broker.cache.has(topic, index):
            codes[topic, index] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return {one: codes.get(one, Errors.OPERATION_NOT_ATTEMPTED) for one in partitions} if codes else {}


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions in a request's topics, each once, in the order of the request."""
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _results(make: Any, codes: Codes) -> list[Any]:
    topics: dict[str, Any] = {}
    for (name, index), code in codes.items():
        if name not in topics:
            topics[name] = make(name=name, results_by_partition=[])
        topics[name].results_by_partition.append(
            make.ResultsByPartition(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())


def _store_result(results: _Results, number: int, transactional_id: str, codes: Codes) -> None:
    make = ADD_PARTITIONS_TO_TXN.Response.ResultsByTransaction
    results.store(number, make(transactional_id=transactional_id, topic_results=_results(make.TopicResults, codes)))


class _Results:
    """Collects the results for the transactions of one request, which arrive in any order and from any thread. When all
    results have arrived, it calls `done(results)`."""

    def __init__(self, count: int, done: Callable[[list[Any]], object]) -> None:
        self._results: list[Any] = [None] * count
        self._left = count + 1
        self._done = done
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Allow `done` to be called from now on. The caller calls this once, after it has started the work on all
        transactions. If all results have arrived already, `done` is called by this call."""
        self._less()

    def store(self, number: int, result: Any) -> None:
        """Store the result with this number. Called once for each transaction of the request."""
        self._results[number] = result
        self._less()

    def _less(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._done(self._results)


@serves(
    ADD_OFFSETS_TO_TXN,
    checks=[
        Check(Right("WRITE", "TRANSACTIONAL_ID"), TRANSACTIONAL_ID_DENIED, lambda request: (request.transactional_id,)),
        Check(Right("READ", "GROUP"), GROUP_DENIED, lambda request: (request.group_id,)),
    ],
    in_order=True,
)
def add_offsets_to_txn(broker: Services, call: Call, request: Any) -> Any:
    """Handle AddOffsetsToTxn: add the group's partition of `__consumer_offsets` to the transaction. Return an error
    code."""
    make = ADD_OFFSETS_TO_TXN.Response
    if call.is_denied("TRANSACTIONAL_ID"):
        return make(error_code=Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if call.denied:
        return make(error_code=Errors.GROUP_AUTHORIZATION_FAILED)
    offsets = (GROUPS, broker.coordinators.group_shards.partition_for(request.group_id))
    return answered(
        call,
        lambda reply: broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [offsets],
            lambda code: reply(make(error_code=known_to(call, code))),
        ),
    )
