"""Produce (versions 0 to 11): append record batches.

The requests that arrive together, also on several connections, share one append per partition.
Source: KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend.

Differences from Kafka:

- If a request names a partition twice, both record sets are appended, each with its own result. Kafka appends only the
  last.
- A batch is refused if it is larger than kafkapy.decompressed.max.bytes after decompression.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy._ext.hotpath import decode_produce_frame
from kafkapy.network.replies import CLOSE, Pending, Reply
from kafkapy.protocol.apis import PRODUCE
from kafkapy.server.api_table import Joins, serves
from kafkapy.server.checks import TOPIC_DENIED, TRANSACTIONAL_ID_DENIED, Check, Right
from kafkapy.server.producing.authorization import authorize_transactional, writes
from kafkapy.server.producing.gather import Asked, Gather, pending_of
from kafkapy.server.producing.transactions import TransactionalSets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.server.call import Call
    from kafkapy.server.producing.transactions import Refusals
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.produce")

# A network thread appends up to this many record sets. More record sets take milliseconds (a million take ten seconds),
# so they are appended on the conversion pool.
MOST_INLINE = 1000
FEW = 8  # most record sets of a connection that may be joined with those of other connections


def _same_acks(first: Call, call: Call) -> bool:
    # A failed append with acks=0 closes the connection, so responses to other requests must not be in the same list.
    return bool((first.request.acks == 0) == (call.request.acks == 0))


def _few(calls: Sequence[Call]) -> bool:
    count = 0
    for call in calls:
        request = call.request
        if request.in_transaction or not request.acks:
            return False
        count += request.size
    return bool(count <= FEW)


def _count(calls: Sequence[Call]) -> tuple[int, bool]:
    """Return the number of record sets or topics in Produce calls, and True if any of them belongs to a transaction."""
    count, in_transaction = 0, False
    for call in calls:
        count += call.request.size
        in_transaction = in_transaction or call.request.in_transaction
    return count, in_transaction


@serves(
    PRODUCE,
    decode=decode_produce_frame,
    joins=Joins(_same_acks, _few),
    checks=[
        Check(
            Right("WRITE", "TRANSACTIONAL_ID"),
            TRANSACTIONAL_ID_DENIED + " on each partition; with acks=0 the connection is closed",
            only="with transactional batches",
        ),
        Check(
            Right("WRITE", "TOPIC"),
            TOPIC_DENIED + " for its partitions, the others are appended; with acks=0 the connection is closed",
        ),
    ],
    authorizes=writes,
    asks_itself=True,
    in_order=True,
    quota="produce",
)
def produce(broker: Services, lists: Sequence[Sequence[Call]]) -> list[list[Reply]]:
    """Handle the Produce requests of one or several connections: append the records of all calls, with one append per
    partition.

    Return a list of replies for each list of calls: one reply per call, or one Pending for all of them.
    """
    refused: Refusals | None = None
    if len(lists) == 1:  # joined requests of several connections are small and not transactional
        count, in_transaction = _count(lists[0])
        if count > MOST_INLINE:
            pending = pending_of(lists[0])
            broker.conversion_pool.submit(_verify_and_append, broker, lists[0], pending)
            return [[pending]]
        if in_transaction:
            verified = _verify(broker, lists[0])
            if isinstance(verified, Pending):
                return [[verified]]
            refused = verified
    gather = Gather(broker)
    all_asked = []
    for calls in lists:
        asked = Asked(broker, calls)
        all_asked.append(asked)
        try:
            gather.add(asked, refused)
        except Exception:  # close only this connection; requests of the other connections are still handled
            log.exception("%s failed", asked.calls[0])
            asked.failed = True
    gather.append()
    return [asked.release() for asked in all_asked]


def _authorize_transactional(broker: Services, calls: Sequence[Call]) -> None:
    """Authorize the requests with records of a transaction, before a coordinator is asked. Other requests are
    authorized when their record sets are gathered."""
    if broker.authorizer is not None and broker.authorizer.pool is None:
        for call in calls:
            if call.request.in_transaction:
                authorize_transactional(broker, call)


def _verify(broker: Services, calls: Sequence[Call]) -> Refusals | Pending:
    """Verify the transactional record sets of the calls. Return the errors of the record sets that must not be
    appended, or a Pending if a transaction coordinator has to be asked first; the records are then appended when it has
    answered."""
    _authorize_transactional(broker, calls)
    sets = TransactionalSets(broker, calls)
    refused = sets.begin()
    if refused is not None:
        return refused
    pending = pending_of(calls)
    sets.then(lambda refused: _append_later(broker, calls, pending, refused))
    return pending


def _verify_and_append(broker: Services, calls: Sequence[Call], pending: Pending) -> None:
    """Verify and append the record sets of large requests, on the conversion pool, and complete `pending`."""
    try:
        _authorize_transactional(broker, calls)
        sets = TransactionalSets(broker, calls)
        refused = sets.begin()
    except Exception:
        log.exception("%s failed", calls[0])
        pending.complete(CLOSE)
        return
    if refused is None:
        sets.then(lambda refused: _append_later(broker, calls, pending, refused))
    else:
        _append_later(broker, calls, pending, refused)


def _append_later(broker: Services, calls: Sequence[Call], pending: Pending, refused: Refusals) -> None:
    try:
        asked = Asked(broker, calls, pending)
        gather = Gather(broker)
        gather.add(asked, refused)
        gather.append()
        if asked.awaited.pop():
            asked.complete()
    except Exception:
        log.exception("%s failed", calls[0])
        pending.complete(CLOSE)
