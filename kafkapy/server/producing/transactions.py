"""Verifies transactional record sets in produce requests: a set is appended only if its transaction includes the
partition.

Source: KafkaApis.handleProduceRequest and ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkapy._ext.hotpath import ProduceRequest
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.replica.verification import Refused
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

# The errors of record sets, by (number of the request, topic, partition).
Refusals = dict[tuple[int, str, int], KafkaError]

ABORTABLE_SINCE = 11  # clients of this or a later version know TRANSACTION_ABORTABLE

_HEAD = struct.Struct(">16xb5xB20xqhi")  # magic, low byte of the attributes, producer id, epoch, base sequence
_TRANSACTIONAL = 0x10

# Old clients may not retry after these errors. So clients get NOT_ENOUGH_REPLICAS instead, after which they retry
# without fetching metadata.
_TRY_AGAIN = frozenset(
    {
        Errors.CONCURRENT_TRANSACTIONS,
        Errors.NETWORK_EXCEPTION,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
    }
)

_Key = tuple[str, int, int, bool]  # transactional id, producer id, epoch, True if clients know TRANSACTION_ABORTABLE
_Batches = list[tuple[int, str, int, int]]  # number of the request, topic, partition, base sequence


class TransactionalSets:
    """Verifies the transactional record sets of Produce requests that are handled together.

    Call `begin` once. If it returns None, call `then`.
    """

    def __init__(self, broker: Services, calls: Sequence[Call]) -> None:
        self._broker = broker
        self._refused: Refusals = {}
        self._lock = threading.Lock()
        self._then: Callable[[Refusals], None] | None = None
        self._asked: dict[_Key, _Batches] = {}
        for number, call in enumerate(calls):
            if call.request.in_transaction and not call.is_denied("TRANSACTIONAL_ID"):
                self._take(number, call.request)
        self._left = len(self._asked)

    def _take(self, number: int, frame: ProduceRequest) -> None:
        producers: set[tuple[int, int]] = set()
        batches: _Batches = []
        for topic, index, producer_id, epoch, sequence in _transactional(frame):
            producers.add((producer_id, epoch))
            batches.append((number, topic, index, sequence))
        if frame.transactional_id is None:
            code, why = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction without its id"
        elif len(producers) > 1:
            code, why = Errors.INVALID_PRODUCER_ID_MAPPING, f"one transaction, {len(producers)} producers"
        else:
            for producer_id, epoch in producers:
                key = (frame.transactional_id, producer_id, epoch, frame.api_version >= ABORTABLE_SINCE)
                self._asked.setdefault(key, []).extend(batches)
            return
        for topic, partitions in frame.topics:
            for index, _ in partitions:
                self._refused[number, topic, index] = KafkaError(code, why)

    def begin(self) -> Refusals | None:
        """Ask the transaction coordinators about all record sets. Return the errors of the record sets that must not be
        appended, or None if a coordinator has not answered yet."""
        if self._asked:
            # Count one more than the questions: an answer that arrives during the loop must not set the count to 0.
            self._left += 1
            for (transactional_id, producer_id, epoch, abortable), batches in self._asked.items():
                self._broker.verifier.verify(
                    transactional_id,
                    producer_id,
                    epoch,
                    [batch[1:] for batch in batches],
                    partial(self._answered, batches),
                    abortable=abortable,
                )
            with self._lock:
                self._left -= 1
                if self._left:
                    return None
        return self._refused

    def then(self, act: Callable[[Refusals], None]) -> None:
        """Call `act` with the errors of the record sets that must not be appended when all coordinators have answered:
        now, or later from any thread. Call this only after `begin` has returned None."""
        with self._lock:
            if self._left:
                self._then = act
                return
        act(self._refused)

    def _answered(self, batches: _Batches, refused: Refused) -> None:
        with self._lock:
            for number, topic, index, _ in batches:
                if (topic, index) in refused:
                    self._refused[number, topic, index] = _to_producer(refused[topic, index])
            self._left -= 1
            act = self._then if not self._left else None
        if act is not None:
            act(self._refused)


def _transactional(frame: ProduceRequest) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield (topic, partition, producer id, producer epoch, base sequence) of each transactional record batch in a
    Produce request."""
    for topic, partitions in frame.topics:
        for index, records in partitions:
            if records is not None and len(records) >= _HEAD.size:
                magic, attributes, producer_id, epoch, sequence = _HEAD.unpack_from(records)
                if magic == 2 and attributes & _TRANSACTIONAL and producer_id >= 0:
                    yield topic, index, producer_id, epoch, sequence


def _to_producer(refusal: KafkaError) -> KafkaError:
    if refusal.code in _TRY_AGAIN:
        return KafkaError(Errors.NOT_ENOUGH_REPLICAS, refusal.message)
    return refusal.as_value()
