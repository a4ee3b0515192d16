"""The API of committed offsets for the request handlers. It runs each request on the partition of `__consumer_offsets`
that stores the group.

Source: the parts of Kafka's GroupCoordinator and GroupMetadataManager that concern offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.coordinator.groups.group import DEAD
from kafkapy.coordinator.offset_records import CommittedOffset
from kafkapy.coordinator.offsets.commits import Codes, Commit, RunningCommit, commit_error, refuse
from kafkapy.coordinator.offsets.expiry import GroupExpiry
from kafkapy.coordinator.offsets.removals import Done, check_deletion, remove
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.coordinator.shard import Effects
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import LONGEST, fits

if TYPE_CHECKING:
    from kafkapy.coordinator.group_machine import GroupMachine
    from kafkapy.coordinator.shard import Shard
    from kafkapy.coordinator.shards import Shards
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator.offsets")

NONE_COMMITTED = CommittedOffset(-1)
_MINUTE_MS = 60_000

# An error code and the committed offset; NONE_COMMITTED if there is none.
Found = tuple[int, CommittedOffset]


_NONE: Found = (Errors.NONE, NONE_COMMITTED)
_UNSTABLE: Found = (Errors.UNSTABLE_OFFSET_COMMIT, NONE_COMMITTED)
_PARTITIONS_A_STEP = 1000  # partitions that are looked up in one step
_GROUPS_AN_APPEND = 100  # groups whose offsets of a deleted topic go in one step


class Settings(Protocol):
    """The broker's settings by name, such as a BrokerConfig."""

    def __getitem__(self, name: str) -> Any: ...


class OffsetManager:
    """Commits, fetches, deletes and expires committed offsets of the groups that this broker coordinates. `settings()`
    returns the broker's settings and is called for each request, because settings can change while the broker runs."""

    def __init__(self, shards: Shards[GroupMachine], settings: Callable[[], Settings], clock: Clock) -> None:
        self._shards = shards
        self._settings = settings
        self._clock = clock

    # --- commits

    def commit(self, request: Commit, done: Codes) -> None:
        """Commit the offsets of a request. Call `done(codes)` once, with an error code for each offset in the request's
        order, either at once or later on any thread."""
        self.commit_together([(request, done)])

    def commit_together(self, requests: Sequence[tuple[Commit, Codes]]) -> None:
        """Commit the offsets of several requests as `commit` would, but with a single append for all requests whose
        groups are stored in the same partition. `requests` has (request, done) pairs.

        A transactional commit must be the only request of its call.
        """
        settings = self._settings()
        max_metadata, max_bytes = settings["offset.metadata.max.bytes"], settings["message.max.bytes"]
        by_shard: dict[Shard[GroupMachine], list[RunningCommit]] = {}
        for request, done in requests:
            try:
                check_group_id(request.group_id, may_be_empty=request.producer is None)
                shard = self._shards.of(request.group_id)
                commit = RunningCommit(request, done, max_metadata, max_bytes)
            except KafkaError as error:
                refuse(request, done, error)
                continue
            by_shard.setdefault(shard, []).append(commit)
        for shard, commits in by_shard.items():
            shard.run_joined([(commit.step, commit.refuse) for commit in commits])
            for commit in commits:
                if not commit.is_answered:  # the append waits
                    commit.timer = shard.after(settings["offsets.commit.timeout.ms"] / 1000, commit.time_out)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that stores the offsets of a group. Raises KafkaError if the
        group id is invalid or this broker is not the group's coordinator."""
        check_group_id(group_id, may_be_empty=False)
        return self._shards.of(group_id).index

    def refused(self, request: Commit, error: KafkaError) -> int:
        """Return the error code to send for a transactional commit whose transaction could not be verified because of
        `error`."""
        log.debug("a transactional commit of group %r is refused: %s", request.group_id, error)
        return commit_error(error)

    def transaction_ended(
        self, index: int, producer_id: int, committed: bool, then: Callable[[], object] | None = None
    ) -> None:
        """Apply the end of a producer's transaction, whose marker was appended to partition `index` of
        `__consumer_offsets`, to the offsets committed in the transaction. Then call `then`.

        If the partition is being loaded, the load finds the marker in the log. Otherwise the end is applied after the
        appends that are now in progress. A commit that precedes the marker in the log may not be applied yet, if both
        waited for the same flush or if the transaction was aborted while its producer was still committing.
        """
        shard = self._shards.at(index)
        if shard is not None:
            try:
                shard.after_pending_appends(lambda machine: machine.offsets.transaction_ended(producer_id, committed))
            except KafkaError as error:
                log.debug(
                    "the load of the shard will apply the end of the transaction of producer %d: %s", producer_id, error
                )
        if then is not None:
            then()

    # --- reading

    def fetch(self, group_id: str, partitions: Sequence[TopicPartition], *, require_stable: bool) -> list[Found]:
        """Return an error code and the committed offset for each partition, in order. The offset is -1 (NONE_COMMITTED)
        where none is committed.

        With `require_stable`, a partition with a commit in progress or in an open transaction gets the code
        UNSTABLE_OFFSET_COMMIT. Raises KafkaError if this broker cannot serve the group.
        """
        shard = self._shards.of(group_id)
        found: list[Found] = []
        for at in range(0, len(partitions), _PARTITIONS_A_STEP):  # releases the shard's lock in between
            asked = partitions[at : at + _PARTITIONS_A_STEP]
            found += shard.read(partial(_found, group_id, asked, require_stable))
        return found

    def fetch_all(self, group_id: str, *, require_stable: bool) -> list[tuple[str, int, Found]]:
        """Return all committed offsets of the group as (topic, partition, (error code, committed offset)), sorted by
        topic and partition.

        `require_stable` is as in `fetch`. Raises KafkaError if this broker cannot serve the group.
        """

        def look(machine: GroupMachine) -> tuple[list[Any], Collection[TopicPartition]]:
            if not _is_alive(machine, group_id):
                return [], ()
            # A copy: if a transaction ended after the lock is released, its old offset would otherwise look stable.
            return machine.offsets.table.of_group(group_id), set(
                machine.offsets.unstable(group_id) if require_stable else ()
            )

        offsets, unstable = self._shards.of(group_id).read(look)
        offsets.sort()
        return [
            (topic, partition, _UNSTABLE if (topic, partition) in unstable else (Errors.NONE, CommittedOffset(*commit)))
            for topic, partition, commit in offsets
        ]

    def count(self, group_id: str) -> int:
        """Return the number of committed offsets of the group, including commits in progress. Return 0 if this broker
        is not the group's coordinator."""
        try:
            return self._shards.of(group_id).read(lambda machine: machine.offsets.count(group_id))
        except KafkaError:
            return 0

    # --- deletion

    def delete(
        self, group_id: str, partitions: Sequence[TopicPartition], done: Callable[[int, list[int]], None]
    ) -> None:
        """Delete the group's committed offsets in these partitions. Call `done(error code of the group, error codes of
        the partitions)` once, either at once or later on any thread."""

        def step(machine: GroupMachine) -> Any:
            codes = check_deletion(machine, group_id, partitions)
            doomed = [partition for partition, code in zip(partitions, codes, strict=True) if not code]
            if not doomed:
                done(Errors.NONE, codes)
                return None
            machine.counts.deleted += sum(
                machine.offsets.get(group_id, *partition) is not None for partition in dict.fromkeys(doomed)
            )
            # As in Kafka, the codes are the same if the append fails, in which case the offsets remain.
            return remove(machine, group_id, doomed, lambda error: done(Errors.NONE, codes))

        try:
            check_group_id(group_id, may_be_empty=False)
            self._shards.of(group_id).run(step)
        except KafkaError as error:
            done(error.code, [])

    def topic_deleted(self, topic: str, partitions: Collection[int]) -> None:
        """Delete the committed offsets of all groups in these partitions of a deleted topic, in small steps. Blocks
        until the loaded partitions of `__consumer_offsets` are done.

        The caller must not let the topic be created again before this returns: the offsets of the new topic would be
        deleted too. A partition of `__consumer_offsets` that is being loaded deletes the offsets at the end of its
        load, before it handles a commit.
        """
        count = 0

        def drop(shard: Shard[GroupMachine]) -> None:
            nonlocal count
            count += self._drop_topic(shard, topic, partitions)

        self._shards.each(drop)
        if count:
            log.info("deleted %d committed offsets of the deleted topic %s", count, topic)

    def _drop_topic(self, shard: Shard[GroupMachine], topic: str, partitions: Collection[int]) -> int:
        count, begin = 0, 0
        failures: list[KafkaError] = []

        def written(error: KafkaError | None) -> None:
            if error is not None:
                if not failures:  # one warning a shard, not one for each group
                    _warn_left(topic, shard, error)
                failures.append(error)

        try:
            while begin >= 0:
                found, begin = shard.read(partial(_of_topic, topic, begin))
                doomed: dict[str, list[TopicPartition]] = {}
                for group_id, partition in found:
                    if partition in partitions:
                        doomed.setdefault(group_id, []).append((topic, partition))
                steps = [
                    (partial(_drop, group_id=group_id, partitions=offsets, done=written), written)
                    for group_id, offsets in doomed.items()
                ]
                # One append for many groups: every change of a topic waits until this deletion is done.
                for at in range(0, len(steps), _GROUPS_AN_APPEND):
                    shard.run_joined(steps[at : at + _GROUPS_AN_APPEND])
                    _yield()
                count += sum(map(len, doomed.values()))
        except KafkaError as error:
            written(error)
        return count

    def expire(self) -> None:
        """Delete committed offsets that are older than offsets.retention.minutes, and groups left without members and
        offsets, in small steps. Blocks until all loaded partitions of `__consumer_offsets` were checked."""
        count = sum(self._expire(shard) for shard in self._shards.active())
        if count:
            log.info("deleted %d expired committed offsets", count)

    def _expire(self, shard: Shard[GroupMachine]) -> int:
        now_ms = self._clock.time_ms()
        retention_ms = self._settings()["offsets.retention.minutes"] * _MINUTE_MS
        count = 0
        try:
            for group_id in shard.read(lambda machine: list(machine.groups)):
                expiry = GroupExpiry(group_id, now_ms, retention_ms)
                while not expiry.is_done:
                    shard.run(expiry.step)
                    _yield()
                count += expiry.removed
        except KafkaError as error:  # the shard has ended
            log.debug("the expiry of offsets in %s stops: %s", shard.name, error)
        return count


def _found(
    group_id: str, partitions: Sequence[TopicPartition], require_stable: bool, machine: GroupMachine
) -> list[Found]:
    if not _is_alive(machine, group_id):
        return [_NONE] * len(partitions)
    store = machine.offsets
    unstable = store.unstable(group_id) if require_stable else ()
    found = []
    for topic, partition in partitions:
        if (topic, partition) in unstable:
            found.append(_UNSTABLE)
        else:
            committed = store.get(group_id, topic, partition)
            found.append(_NONE if committed is None else (Errors.NONE, committed))
    return found


def _of_topic(topic: str, begin: int, machine: GroupMachine) -> tuple[list[tuple[str, int]], int]:
    return machine.offsets.of_topic(topic, begin)


def _drop(machine: GroupMachine, group_id: str, partitions: Collection[TopicPartition], done: Done) -> Effects:
    """Delete a group's offsets of a deleted topic: in memory at once, and in the log by the returned tombstones.

    The offsets must not be visible while the append waits, because a new topic of the same name begins without offsets.
    If the append fails, the next load of the partition restores the offsets.
    """
    effects = remove(machine, group_id, partitions, done)
    machine.offsets.apply(effects.records, None)
    return effects


def _warn_left(topic: str, shard: Shard[GroupMachine], error: KafkaError) -> None:
    log.warning("committed offsets of the deleted topic %s could not be deleted in %s: %s", topic, shard.name, error)


def _yield() -> None:
    """Release the GIL for a moment, so that other threads can run."""
    time.sleep(0)


def check_group_id(group_id: str, *, may_be_empty: bool) -> None:
    """Raise KafkaError INVALID_GROUP_ID if the group id is too long, or if it is empty and `may_be_empty` is False.
    Offsets of old consumers may have an empty group id."""
    if not group_id and not may_be_empty:
        raise KafkaError(Errors.INVALID_GROUP_ID, "the group id is empty")
    if not fits(group_id):
        raise KafkaError(Errors.INVALID_GROUP_ID, f"the group id is longer than {LONGEST} bytes")


def _is_alive(machine: GroupMachine, group_id: str) -> bool:
    group = machine.groups.get(group_id)
    return group is not None and group.state != DEAD
