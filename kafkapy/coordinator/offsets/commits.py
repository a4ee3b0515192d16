"""Commits offsets: checks a commit request, and refuses it or returns the records to append.

Source: Kafka's GroupCoordinator.handleCommitOffsets, handleTxnCommitOffsets and GroupMetadataManager.storeOffsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkapy._ext.offset_commit import encode_commit
from kafkapy.coordinator.coordinator_log import coordinator_error
from kafkapy.coordinator.offset_records import NO_TIMESTAMP
from kafkapy.coordinator.offsets.store import NewOffsets, PendingCommit
from kafkapy.coordinator.shard import TOO_LARGE, Effects
from kafkapy.errors import Errors, KafkaError

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.shard import Producer

log = logging.getLogger("kafkapy.coordinator.offsets")

# Called with an error code for each offset of the commit, in their order.
Codes = Callable[[list[int]], None]

_MIN_RECORD_BYTES = 46  # the least size of a commit's record in bytes


class Commit(NamedTuple):
    """An offset commit request. `generation` is -1 if the commit does not come from a member of the group. `producer`
    is set for a commit in that producer's transaction. `now_ms` is the time at which the request came, `expire_ms` the
    time at which its offsets expire, NO_TIMESTAMP if the broker's retention applies."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: NewOffsets
    producer: Producer | None = None
    now_ms: int = NO_TIMESTAMP
    expire_ms: int = NO_TIMESTAMP


class RunningCommit(PendingCommit):
    """A commit request with its records, until its response is sent.

    The response is sent once: by the step or after the append of its records, if the commit is refused, or when
    offsets.commit.timeout.ms is over. All methods run under the lock of the group's shard (its partition of
    `__consumer_offsets`), so they cannot race.
    """

    __slots__ = ("_codes", "_done", "_machine", "_records", "_request", "is_answered", "timer")

    def __init__(self, request: Commit, done: Codes, max_metadata: int, max_bytes: int) -> None:
        """Encode the offsets of a request as records, which takes no lock. `done` is called with the error codes.

        `max_metadata` is offset.metadata.max.bytes; offsets with longer metadata get the code
        OFFSET_METADATA_TOO_LARGE. `max_bytes` is the largest size of a batch. Raises KafkaError
        INVALID_COMMIT_OFFSET_SIZE if the records cannot fit into one batch.
        """
        offsets, producer = request.offsets, request.producer
        self._records, self._codes = encode_commit(
            request.group_id, offsets, request.now_ms, request.expire_ms, max_metadata
        )
        if len(self._records) * _MIN_RECORD_BYTES > max_bytes:
            raise KafkaError(
                Errors.INVALID_COMMIT_OFFSET_SIZE,
                f"a commit of {len(self._records)} offsets is larger than message.max.bytes, {max_bytes}",
            )
        if any(self._codes):
            offsets = _accepted(offsets, self._codes)
        super().__init__(request.group_id, offsets, None if producer is None else producer.id)
        self._request = request
        self._done = done
        self._machine: GroupMachine | None = None
        self.timer: Any = None
        self.is_answered = False

    def step(self, machine: GroupMachine) -> Effects | None:
        """Return the records to append. If no offset was accepted, send the response and return None. Raises KafkaError
        if the group refuses the commit."""
        _check(machine, self._request)
        if not self._records:
            self._answer(self._codes)
            return None
        self._machine = machine
        machine.offsets.commit_begins(self)
        return Effects(self._records, self._appended, self._request.producer)

    def _appended(self, error: KafkaError | None) -> None:
        assert self._machine is not None
        self._machine.offsets.commit_ends(self, applied=error is None)
        if error is None:
            self._machine.counts.commits += len(self._records)
            self._answer(self._codes)
        else:
            failure = commit_error(error)
            self._answer([code or failure for code in self._codes])

    def refuse(self, error: KafkaError) -> None:
        _log_refused(self.group_id, error)
        self._answer([error.code] * len(self._codes))

    def time_out(self, _: object) -> None:
        self._answer([Errors.REQUEST_TIMED_OUT] * len(self._codes))

    def _answer(self, codes: list[int]) -> None:
        if self.is_answered:
            return
        self.is_answered = True
        if self.timer is not None:
            self.timer.cancel()
        self._done(codes)


def refuse(request: Commit, done: Codes, error: KafkaError) -> None:
    """Refuse a commit request of which no records could be made."""
    _log_refused(request.group_id, error)
    done(same_code(request, error.code))


def same_code(request: Commit, code: int) -> list[int]:
    """Return a list with the same error code for each offset of the request."""
    return [code for _, offsets in request.offsets for _ in offsets]


def _log_refused(group_id: str, error: KafkaError) -> None:
    log.debug("a commit of group %r is refused: %s", group_id, error)


def _accepted(offsets: NewOffsets, codes: list[int]) -> NewOffsets:
    """Return the offsets whose code is NONE."""
    each = iter(codes)
    return [(topic, [one for one in of_topic if not next(each)]) for topic, of_topic in offsets]


def _check(machine: GroupMachine, request: Commit) -> None:
    """Raise KafkaError unless the group accepts this commit. If the group does not exist and the commit does not name a
    generation, or is transactional, the group is created."""
    transactional = request.producer is not None
    if request.producer is not None and request.producer.id < 0:
        raise KafkaError(Errors.INVALID_PRODUCER_ID_MAPPING, f"{request.producer.id} is not a producer id")
    group = machine.groups.get(request.group_id)
    if group is None:
        if request.generation >= 0 and not transactional:
            raise KafkaError(
                Errors.ILLEGAL_GENERATION,
                f"there is no group {request.group_id!r}, so it has no generation {request.generation}",
            )
        machine.check_room(request.group_id)
        group = machine.group(request.group_id, create=True)
        assert group is not None
    group.check_commit(request.member_id, request.instance_id, request.generation, transactional=transactional)


def commit_error(error: KafkaError) -> int:
    """Return the error code to send to a client whose commit could not be appended, or whose transaction could not be
    verified."""
    if error.code in TOO_LARGE:
        return Errors.INVALID_COMMIT_OFFSET_SIZE
    # clients do not expect NETWORK_EXCEPTION here; this code makes them retry
    if error.code == Errors.NETWORK_EXCEPTION:
        return Errors.COORDINATOR_LOAD_IN_PROGRESS
    return coordinator_error(error)
