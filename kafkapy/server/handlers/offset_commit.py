"""OffsetCommit and TxnOffsetCommit: a group's offsets, in `__consumer_offsets`; those of version 0 in the metadata.

Source: KafkaApis.handleOffsetCommitRequest, handleTxnOffsetCommitRequest, GroupCoordinatorAdapter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.network.replies import CLOSE
from kafkapy.protocol.apis import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, Soon, answered

if TYPE_CHECKING:
    from kafkapy.coordinator.offsets.commits import Codes
    from kafkapy.server.committing import Answers, Commit
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.offsets")

# Takes the response message.
Reply = Callable[[Any], None]

ABORTABLE_SINCE = 4  # clients know TRANSACTION_ABORTABLE
LOADING_SINCE = 2  # transactional producers before Kafka 2.0 may crash of COORDINATOR_LOAD_IN_PROGRESS
NOT_SAID = -1
LARGE = 2000  # offsets: some milliseconds, in which the network thread would serve nobody else
_INT64_MAX = (1 << 63) - 1


def _begun(broker: Services, call: Call, request: Any, begin: Callable[[Services, Call, Any, Reply], None]) -> Any:
    count = sum(len(topic.partitions) for topic in request.topics)
    pool = broker.disk_pool if count >= LARGE else None
    return answered(call, lambda reply: begin(broker, call, request, reply), pool)


@serves(OFFSET_COMMIT)
def commit(broker: Services, call: Call, request: Any) -> Any:
    return _begun(broker, call, request, _commit)


def _commit(broker: Services, call: Call, request: Any, reply: Reply) -> None:
    begun = _begin(broker, call, request, reply)
    if begun is not None:
        broker.offsets.commit(*begun)


def may_wait(version: int) -> bool:
    """Whether a small request of this version may go into one append with those of other connections."""
    return version > 0


def handle_turn(broker: Services, calls: Sequence[tuple[Call, Any]]) -> list[Any]:
    """As `commit` for the request of each call, but with one append a partition for all of them."""
    commits: list[tuple[Commit, Codes]] = []
    answers = [Soon(call) for call, _ in calls]
    for answer, (call, request) in zip(answers, calls, strict=True):
        try:
            begun = _begin(broker, call, request, answer.reply)
        except Exception:  # is this connection's, and no other's
            log.exception("%s failed", call)
            answer.reply(CLOSE)
            continue
        if begun is not None:
            commits.append(begun)
    broker.offsets.commit_together(commits)
    return [answer.leave() for answer in answers]


def _begin(broker: Services, call: Call, request: Any, reply: Reply) -> tuple[Commit, Codes] | None:
    """The commit, and who is told of it; None where it was answered."""
    from kafkapy.server.committing import Answers, Commit

    now_ms = broker.clock.time_ms()
    expire_ms = NOT_SAID
    if request.retention_time_ms != NOT_SAID:
        expire_ms = max(0, min(now_ms + request.retention_time_ms, _INT64_MAX))
    answers = Answers(
        broker.topics, OFFSET_COMMIT.Response, request.topics, now_ms, expire_ms, own_times=call.version == 1
    )
    if not answers.offsets:
        reply(answers.message([]))
        return None
    if call.version == 0:
        _keep_in_metadata(broker, request.group_id, answers, reply)
        return None
    what = Commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        answers.offsets,
    )
    return what, lambda codes: reply(answers.message(codes))


def _keep_in_metadata(broker: Services, group_id: str, answers: Answers, reply: Reply) -> None:
    limit = broker.config["offset.metadata.max.bytes"]
    codes = [
        Errors.OFFSET_METADATA_TOO_LARGE if len(one.committed.metadata) > limit else Errors.NONE
        for one in answers.offsets
    ]
    kept = [
        (one.topic, one.partition, one.committed.offset)
        for one, code in zip(answers.offsets, codes, strict=True)
        if code == Errors.NONE
    ]

    def done(error: Exception | None) -> None:
        failure = Errors.NONE if error is None else Errors.UNKNOWN_SERVER_ERROR
        reply(answers.message([code or failure for code in codes]))

    try:
        broker.consumer_offsets.set(group_id, kept, done)
    except ValueError as error:
        done(error)


@serves(TXN_OFFSET_COMMIT)
def commit_in_transaction(broker: Services, call: Call, request: Any) -> Any:
    return _begun(broker, call, request, _commit_in_transaction)


def _commit_in_transaction(broker: Services, call: Call, request: Any, reply: Reply) -> None:
    from kafkapy.server.committing import Answers, Commit, Producer

    answers = Answers(broker.topics, TXN_OFFSET_COMMIT.Response, request.topics, broker.clock.time_ms())
    if not answers.offsets:
        reply(answers.message([]))
        return
    what = Commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        answers.offsets,
        Producer(request.producer_id, request.producer_epoch),
    )

    def done(codes: list[int]) -> None:
        if call.version < LOADING_SINCE:
            loading, instead = Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE
            codes = [instead if code == loading else code for code in codes]
        reply(answers.message(codes))

    def verified(refusal: KafkaError | None) -> None:
        if refusal is None:
            broker.offsets.commit(what, done)
        else:
            done([broker.offsets.refused(what, refusal)] * len(what.offsets))

    _verify(broker, call, request, verified)


def _verify(broker: Services, call: Call, request: Any, then: Callable[[KafkaError | None], None]) -> None:
    """Whether the transaction's coordinator knows that the group's offsets are in it (KIP-890)."""
    from kafkapy.coordinator.internal_topics import GROUPS

    try:
        index = broker.offsets.partition_of(request.group_id)
    except KafkaError as error:
        then(error)
        return
    broker.verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(GROUPS, index, NOT_SAID)],
        lambda refused: then(refused.get((GROUPS, index))),
        abortable=call.version >= ABORTABLE_SINCE,
    )
