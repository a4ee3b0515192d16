"""Committed offsets of all groups: finds the shard of a group, runs the step there, and tells how it went.

Source: Kafka's GroupCoordinator and GroupMetadataManager, as far as they are about offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy.coordinator.groups.group import DEAD
from kafkapy.coordinator.offset_records import CommittedOffset
from kafkapy.coordinator.offsets.commits import Codes, Commit, Prepared, commit, commit_error, prepare
from kafkapy.coordinator.offsets.expiry import Look
from kafkapy.coordinator.offsets.removals import check_deletion, remove
from kafkapy.coordinator.offsets.store import TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.strings import LONGEST, fits

if TYPE_CHECKING:
    from kafkapy.coordinator.group_shard import GroupShard
    from kafkapy.coordinator.shard import Shard
    from kafkapy.coordinator.shards import Shards
    from kafkapy.runtime.clock import Clock

log = logging.getLogger("kafkapy.coordinator.offsets")

NONE_COMMITTED = CommittedOffset(-1)
_MINUTE_MS = 60_000

# A code and what is committed, NONE_COMMITTED where there is nothing.
Found = tuple[int, CommittedOffset]


_NONE: Found = (Errors.NONE, NONE_COMMITTED)
_UNSTABLE: Found = (Errors.UNSTABLE_OFFSET_COMMIT, NONE_COMMITTED)
_A_TURN = 1000  # partitions that are looked up at a time


class Settings(Protocol):
    """The broker's settings by name."""

    def __getitem__(self, name: str) -> Any: ...


class OffsetManager:
    """What the handlers of offsets call. `settings()` are asked each time: they change while the broker runs."""

    def __init__(self, shards: Shards[GroupShard], settings: Callable[[], Settings], clock: Clock) -> None:
        self._shards = shards
        self._settings = settings
        self._clock = clock

    # --- commits

    def commit(self, request: Commit, done: Codes) -> None:
        """`done(codes)` comes once, at once or from any thread: a code for each offset, in their order."""
        self.commit_together([(request, done)])

    def commit_together(self, requests: Sequence[tuple[Commit, Codes]]) -> None:
        """As `commit` for each, but those of a shard are one append; one in a transaction comes alone."""
        settings = self._settings()
        by_shard: dict[Shard[GroupShard], list[tuple[Prepared, _Answer]]] = {}
        for request, done in requests:
            answer = _Answer(request, done)
            try:
                check_group_id(request.group_id, may_be_empty=request.producer is None)
                shard = self._shards.of(request.group_id)
                prepared = prepare(request, settings["offset.metadata.max.bytes"], settings["message.max.bytes"])
            except KafkaError as error:
                answer.refuse(error)
                continue
            by_shard.setdefault(shard, []).append((prepared, answer))
        timeout_s = settings["offsets.commit.timeout.ms"] / 1000
        for shard, commits in by_shard.items():
            shard.run_together(
                [(partial(commit, prepared=prepared, done=answer.give), answer.refuse) for prepared, answer in commits]
            )
            for _, answer in commits:
                if not answer.is_given:  # the append waits; so does whoever commits, but not for ever
                    answer.entry = shard.after(timeout_s, answer.time_out)

    def partition_of(self, group_id: str) -> int:
        """Where the offsets of a group are kept, of which this broker must be the coordinator. Raises KafkaError."""
        check_group_id(group_id, may_be_empty=False)
        return self._shards.of(group_id).index

    def refused(self, request: Commit, error: KafkaError) -> int:
        """The code by which a commit is refused whose transaction is in doubt."""
        log.debug("a transactional commit of group %r is refused: %s", request.group_id, error)
        return commit_error(error)

    def transaction_ended(
        self, index: int, producer_id: int, committed: bool, then: Callable[[], object] | None = None
    ) -> None:
        """The marker of a producer's transaction is in partition `index` of `__consumer_offsets`.

        A shard that is being loaded finds it in the log. A commit before the marker may still be under way: where both
        have waited for a flush, or a transaction is aborted that its producer is not done with.
        """
        shard = self._shards.at(index)
        if shard is not None:
            try:
                shard.in_turn(lambda home: home.offsets.transaction_ended(producer_id, committed))
            except KafkaError as error:
                log.debug("the end of the transaction of producer %d is left to the load: %s", producer_id, error)
        if then is not None:
            then()

    # --- reading

    def fetch(self, group_id: str, partitions: Sequence[TopicPartition], *, require_stable: bool) -> list[Found]:
        """What is committed for each. With `require_stable` UNSTABLE_OFFSET_COMMIT where that may soon be another.

        Raises KafkaError.
        """
        shard = self._shards.of(group_id)
        found: list[Found] = []
        for at in range(0, len(partitions), _A_TURN):  # others have their turn in between
            asked = partitions[at : at + _A_TURN]
            found += shard.read(partial(_found, group_id, asked, require_stable))
        return found

    def fetch_all(self, group_id: str, *, require_stable: bool) -> list[tuple[str, int, Found]]:
        """Everything that the group has committed, by topic and partition. Raises KafkaError."""

        def look(home: GroupShard) -> tuple[list[Any], Collection[TopicPartition]]:
            if not _is_alive(home, group_id):
                return [], ()
            # A copy: what is decided after this look must not pass for stable with the offset of before.
            return home.offsets.table.of_group(group_id), set(home.offsets.unstable(group_id) if require_stable else ())

        offsets, unstable = self._shards.of(group_id).read(look)
        offsets.sort()
        return [
            (topic, partition, _UNSTABLE if (topic, partition) in unstable else (Errors.NONE, CommittedOffset(*commit)))
            for topic, partition, commit in offsets
        ]

    def count(self, group_id: str) -> int:
        """How many offsets the group has; 0 where that is not known here."""
        try:
            return self._shards.of(group_id).read(lambda home: home.offsets.count(group_id))
        except KafkaError:
            return 0

    # --- deletion

    def delete(
        self, group_id: str, partitions: Sequence[TopicPartition], done: Callable[[int, list[int]], None]
    ) -> None:
        """`done(group's code, a code for each partition)`, at once or from any thread."""

        def step(home: GroupShard) -> Any:
            codes = check_deletion(home, group_id, partitions)
            doomed = [one for one, code in zip(partitions, codes, strict=True) if not code]
            if not doomed:
                done(Errors.NONE, codes)
                return None
            home.counts.deleted += sum(home.offsets.get(group_id, *one) is not None for one in dict.fromkeys(doomed))
            # As in Kafka the answer is the same where the tombstones could not be written: the offsets are there then.
            return remove(home, group_id, doomed, lambda error: done(Errors.NONE, codes))

        try:
            check_group_id(group_id, may_be_empty=False)
            self._shards.of(group_id).run(step)
        except KafkaError as error:
            done(error.code, [])

    def topic_deleted(self, topic: str, partitions: Collection[int]) -> None:
        """Drops what all groups have committed for these partitions of a topic that is gone. Blocks; small steps."""
        count = sum(self._drop_topic(shard, topic, partitions) for shard in self._shards.active())
        if count:
            log.info("topic %s was deleted, and %d committed offsets with it", topic, count)

    def _drop_topic(self, shard: Shard[GroupShard], topic: str, partitions: Collection[int]) -> int:
        count, begin = 0, 0
        try:
            while begin >= 0:
                found, begin = shard.read(partial(_of_topic, topic, begin))
                doomed: dict[str, list[TopicPartition]] = {}
                for group_id, partition in found:
                    if partition in partitions:
                        doomed.setdefault(group_id, []).append((topic, partition))
                for group_id, offsets in doomed.items():
                    shard.run(partial(remove, group_id=group_id, partitions=offsets))
                    count += len(offsets)
                    _yield()
        except KafkaError as error:
            log.warning("offsets of the deleted topic %s are left in %s: %s", topic, shard.name, error)
        return count

    def expire(self) -> None:
        """Drops what is older than offsets.retention.minutes, and empty groups. Blocks; small steps."""
        count = sum(self._expire(shard) for shard in self._shards.active())
        if count:
            log.info("%d committed offsets have expired", count)

    def _expire(self, shard: Shard[GroupShard]) -> int:
        now_ms = self._clock.time_ms()
        retention_ms = self._settings()["offsets.retention.minutes"] * _MINUTE_MS
        count = 0
        try:
            for group_id in shard.read(lambda home: list(home.groups)):
                look = Look(group_id, now_ms, retention_ms)
                while not look.is_done:
                    shard.run(look.step)
                    _yield()
                count += look.removed
        except KafkaError as error:  # the shard has ended
            log.debug("the offsets of %s do not expire here: %s", shard.name, error)
        return count


def _found(group_id: str, partitions: Sequence[TopicPartition], require_stable: bool, home: GroupShard) -> list[Found]:
    if not _is_alive(home, group_id):
        return [_NONE] * len(partitions)
    store = home.offsets
    unstable = store.unstable(group_id) if require_stable else ()
    found = []
    for topic, partition in partitions:
        if (topic, partition) in unstable:
            found.append(_UNSTABLE)
        else:
            committed = store.get(group_id, topic, partition)
            found.append(_NONE if committed is None else (Errors.NONE, committed))
    return found


def _of_topic(topic: str, begin: int, home: GroupShard) -> tuple[list[tuple[str, int]], int]:
    return home.offsets.table.of_topic(topic, begin)


def _yield() -> None:
    """Lets others have the interpreter's lock."""
    time.sleep(0)


def check_group_id(group_id: str, *, may_be_empty: bool) -> None:
    """Raises KafkaError INVALID_GROUP_ID. Old consumers that keep only offsets may have a group without a name."""
    if not group_id and not may_be_empty:
        raise KafkaError(Errors.INVALID_GROUP_ID, "the name of a group is empty")
    if not fits(group_id):
        raise KafkaError(Errors.INVALID_GROUP_ID, f"the name of a group has over {LONGEST} bytes")


def _is_alive(home: GroupShard, group_id: str) -> bool:
    group = home.groups.get(group_id)
    return group is not None and group.state != DEAD


class _Answer:
    """Given once: by the append, or by the time that it may take."""

    __slots__ = ("_done", "_request", "entry", "is_given")

    def __init__(self, request: Commit, done: Codes) -> None:
        self._request = request
        self._done = done
        self.entry: Any = None
        self.is_given = False

    def give(self, codes: list[int]) -> None:
        """Under the shard's lock, as the time-out is: no two come at once."""
        if self.is_given:
            return
        self.is_given = True
        if self.entry is not None:
            self.entry.cancel()
        self._done(codes)

    def refuse(self, error: KafkaError) -> None:
        log.debug("a commit of group %r is refused: %s", self._request.group_id, error)
        self._fail(error.code)

    def time_out(self, _: object) -> None:
        self._fail(Errors.REQUEST_TIMED_OUT)

    def _fail(self, code: int) -> None:
        self.give([code] * len(self._request.offsets))
