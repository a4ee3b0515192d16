"""OffsetCommit (versions 0 to 9) and TxnOffsetCommit (versions 0 to 4).

Version 0 of OffsetCommit stores offsets in the metadata tree, as Kafka does in ZooKeeper; all others append to
`__consumer_offsets`. OffsetCommit requests of several connections share one append per partition.
Source: KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest, GroupCoordinatorAdapter.

Differences from Kafka: static members are served whatever inter.broker.protocol.version is. Kafka refuses their
OffsetCommit with UNSUPPORTED_VERSION below 2.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy._ext.commit_requests import decode_commit_frame
from kafkapy.errors import Errors, KafkaError
from kafkapy.network.replies import CLOSE
from kafkapy.protocol.apis import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from kafkapy.server.api_table import Joins, serves
from kafkapy.server.call import Call, Soon, answered, as_reply
from kafkapy.server.checks import GROUP_DENIED, TOPIC_DENIED, TRANSACTIONAL_ID_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.coordinator.offsets.commits import Codes
    from kafkapy.network.replies import Reply as NetworkReply
    from kafkapy.server.committing import Commit, Reply
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.offsets")

ABORTABLE_SINCE = 4  # clients of this or a later version know TRANSACTION_ABORTABLE
LOADING_SINCE = 2  # transactional producers before Kafka 2.0 may fail on COORDINATOR_LOAD_IN_PROGRESS
_ANY_EPOCH = -1
LARGE = 2000  # a request with this many offsets or topics takes milliseconds, too long for a network thread


_READS_GROUP = Check(Right("READ", "GROUP"), GROUP_DENIED + " on each partition", lambda request: (request.group_id,))
_READS_TOPIC = Right("READ", "TOPIC")
_TOPICS_DENIED = TOPIC_DENIED + " for its partitions; the others are committed"
_READS_TOPICS = Check(_READS_TOPIC, _TOPICS_DENIED, lambda request: [topic for topic, _ in request.offsets])
_READS_TOPICS_IN_TRANSACTION = Check(
    _READS_TOPIC, _TOPICS_DENIED, lambda request: [topic.name for topic in request.topics]
)
_WRITES_TRANSACTIONAL_ID = Check(
    Right("WRITE", "TRANSACTIONAL_ID"),
    TRANSACTIONAL_ID_DENIED + " on each partition",
    lambda request: (request.transactional_id,),
)


@serves(
    OFFSET_COMMIT,
    decode=decode_commit_frame,
    joins=Joins(None, lambda calls: True),
    checks=[_READS_GROUP, _READS_TOPICS],
    in_order=True,
)
def commit(broker: Services, lists: Sequence[Sequence[Call]]) -> list[list[NetworkReply]]:
    """Handle the OffsetCommit requests of several connections, one call per connection, with one append per partition
    of `__consumer_offsets`."""
    first = lists[0][0]
    if first.request.count >= LARGE:  # a large frame is not joined with others, so this call is the only one
        first.meters = broker.meters
        return [[as_reply(first, answered(first, partial(_commit, broker, first), broker.disk_pool))]]
    from kafkapy.server.committing import begin

    commits: list[tuple[Commit, Codes]] = []
    answers: list[tuple[Call, Soon]] = []
    now_ms = broker.clock.time_ms()
    for (call,) in lists:
        call.meters = broker.meters
        answer = Soon(call)
        answers.append((call, answer))
        try:
            begun = begin(broker, call, now_ms, answer.reply)
        except Exception:  # close this connection only; the other commits are not affected
            log.exception("%s failed", call)
            answer.reply(CLOSE)
            continue
        if begun is not None:
            commits.append(begun)
    broker.offsets.commit_together(commits)
    return [[as_reply(call, answer.leave())] for call, answer in answers]


def _commit(broker: Services, call: Call, reply: Reply) -> None:
    from kafkapy.server.committing import begin

    begun = begin(broker, call, broker.clock.time_ms(), reply)
    if begun is not None:
        broker.offsets.commit(*begun)


@serves(TXN_OFFSET_COMMIT, checks=[_WRITES_TRANSACTIONAL_ID, _READS_GROUP, _READS_TOPICS_IN_TRANSACTION], in_order=True)
def commit_in_transaction(broker: Services, call: Call, request: Any) -> Any:
    """Handle TxnOffsetCommit: verify the transaction, then append its offsets to the group's partition of
    `__consumer_offsets`."""
    is_large = max(len(request.topics), sum(len(topic.partitions) for topic in request.topics)) >= LARGE
    pool = broker.disk_pool if is_large else None
    return answered(call, partial(_commit_in_transaction, broker, call, request), pool)


def _commit_in_transaction(broker: Services, call: Call, request: Any, reply: Reply) -> None:
    from kafkapy.server.committing import Answers, Commit, Producer, offsets_in_transaction, refused, same_code

    offsets = offsets_in_transaction(request.topics)
    answers = Answers(broker.cache, offsets, refused(call, offsets) if call.denied else None)

    def done(codes: list[int]) -> None:
        if call.version < LOADING_SINCE:
            loading, instead = Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE
            codes = [instead if code == loading else code for code in codes]
        reply(TXN_OFFSET_COMMIT.Response(topics=answers.topics(codes)))

    if not answers.offsets:
        done([])
        return
    what = Commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        answers.offsets,
        Producer(request.producer_id, request.producer_epoch),
        broker.clock.time_ms(),
    )

    def verified(refusal: KafkaError | None) -> None:
        if refusal is None:
            broker.offsets.commit(what, done)
        else:
            done(same_code(what, broker.offsets.refused(what, refusal)))

    _verify(broker, call, request, verified)


def _verify(broker: Services, call: Call, request: Any, then: Callable[[KafkaError | None], None]) -> None:
    """Call `then(None)` if the transaction coordinator knows that the transaction includes the group's offsets,
    otherwise `then(error)` (KIP-890)."""
    from kafkapy.coordinator.internal_topic_config import GROUPS

    try:
        index = broker.offsets.partition_of(request.group_id)
    except KafkaError as error:
        then(error)
        return
    broker.verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(GROUPS, index, _ANY_EPOCH)],
        lambda refused: then(refused.get((GROUPS, index))),
        abortable=call.version >= ABORTABLE_SINCE,
    )
