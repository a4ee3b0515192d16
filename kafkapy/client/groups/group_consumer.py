"""A consumer that shares the partitions of its topics with the other members of its group.

    with GroupConsumer("127.0.0.1:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll():
                print(record.offset, record.value)

Source: Kafka's ClassicKafkaConsumer and ConsumerCoordinator; KIP-62, KIP-345, KIP-429.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.fetched import ConsumerRecord, Isolation, isolation_level
from kafkapy.client.fetching.fetcher import Fetcher
from kafkapy.client.groups.assignors import Assignor, assignors_of
from kafkapy.client.groups.group_session import JOINING_WAIT_S, GroupSession
from kafkapy.client.groups.group_types import (
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    RebalanceListener,
    with_metadata,
)
from kafkapy.client.groups.subscription import Subscription
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError

log = logging.getLogger(__name__)

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}

Callback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], "Exception | None"], None]


class GroupConsumer:
    """A blocking group consumer for use in one thread. A background thread sends its heartbeats.

    Args:
        cluster: Bootstrap servers, or a Cluster whose addresses and time-outs are copied.
        assignors: Names or Assignors, the preferred one first. The group uses an assignor that all members support. If
            all are cooperative, the consumer can continue to read the partitions that it keeps during a rebalance.
        instance_id: Makes this consumer a static member (KIP-345), which can rejoin within the session time-out without
            a rebalance.
        auto_offset_reset: Where to start in a partition that has no committed offset or whose offset is out of range.
            With "none", `poll` raises KafkaError.
        auto_commit: Commit the positions in `poll`, every `auto_commit_interval_s`, and on close.
        isolation: With read_committed, records of open and aborted transactions are not returned.
        session_timeout_s: The coordinator removes this member after this time without a heartbeat.
        max_poll_interval_s: The longest time allowed between two calls of `poll`. A rebalance waits this long for the
            member.
        max_records: The largest number of records that one `poll` returns.
        max_wait_ms, min_bytes: How long a broker waits for at least `min_bytes` before it responds.
        max_bytes, partition_bytes: The largest size of a response, and of one partition's records in it.
        metadata_max_age_s: How often to look for new topics and partitions.
        rack: This consumer's rack (client.rack). If the leader of a partition names a replica in this rack, the
            consumer fetches from that replica.
        timeout_s: The time limit for one request, and for the retries of a call other than `poll`.
        security: The properties for TLS and login, if `cluster` has bootstrap servers; as for Cluster.
    """

    _fetcher_class: type[Fetcher] = Fetcher

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        group_id: str,
        *,
        assignors: Sequence[str | Assignor] = ("range", "cooperative-sticky"),
        instance_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        auto_commit: bool = True,
        auto_commit_interval_s: float = 5.0,
        isolation: Isolation = "read_uncommitted",
        session_timeout_s: float = 45.0,
        heartbeat_interval_s: float = 3.0,
        max_poll_interval_s: float = 300.0,
        max_records: int = 500,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 16 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
        metadata_max_age_s: float = 300.0,
        rack: str | None = None,
        client_id: str = "kafkapy",
        timeout_s: float = 30.0,
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        if not group_id:
            raise ValueError("the group's name is empty; give the consumers that share partitions one name")
        if auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is {auto_offset_reset!r}; it can be {', '.join(RESETS)}")
        if not 0 < heartbeat_interval_s < session_timeout_s:
            raise ValueError(
                f"heartbeat_interval_s is {heartbeat_interval_s:g}; it must be above 0 and below session_timeout_s, "
                f"which is {session_timeout_s:g}"
            )
        self._reset_to = RESETS[auto_offset_reset]
        self._isolation = isolation_level(isolation)
        # The consumer needs its own connections: responses to other users' requests must not come in between.
        self.cluster = (
            cluster.another()
            if isinstance(cluster, Cluster)
            else Cluster(cluster, client_id=client_id, timeout_s=timeout_s, security=security)
        )
        self.group_id = group_id
        self._max_records = max_records
        self._max_wait_ms = max_wait_ms
        self._metadata_max_age_s = metadata_max_age_s
        self._session = GroupSession(
            self.cluster,
            group_id,
            assignors_of(assignors),
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
            max_poll_interval_s=max_poll_interval_s,
            auto_commit_interval_s=auto_commit_interval_s if auto_commit else None,
            rack=rack,
        )
        self._assigned = self._session.assigned
        self._offsets = self._session.offsets
        self._fetcher = self._fetcher_class(
            self.cluster,
            self._assigned,
            reset_to=self._reset_to,
            isolation=self._isolation,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_bytes=partition_bytes,
            rack=rack,
        )
        self._admin = Admin(self.cluster)
        self._fetch_offsets_at = 0.0
        self._was_connected = False
        self._closed = False

    def __enter__(self) -> "GroupConsumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer.

        After an exception in the block, do not auto-commit, because records may not have been processed.
        """
        if kind is not None:
            self._session.auto_commit_interval_s = None
        self.close()

    # Subscription and records

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are currently assigned to this member."""
        return frozenset(self._assigned.states)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        return frozenset(where for where, state in self._assigned.states.items() if state.paused)

    def group_metadata(self) -> GroupMetadata:
        """Return the group id, generation and member id of this consumer, for `TransactionalProducer.send_offsets`."""
        return self._session.membership.member

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None = None) -> None:
        """Subscribe to topics, in place of the topics subscribed before. The next `poll` joins the group.

        Args:
            topics: Topic names; or a pattern (`re.compile`), which selects all existing and future topics in whose name
                it is found, except for internal topics.
            listener: Its methods are called when partitions are assigned, revoked or lost.
        """
        self._usable()
        subscription = Subscription(self.cluster, topics, self._metadata_max_age_s)
        self._session.subscribe(subscription, listener or RebalanceListener())

    def unsubscribe(self) -> None:
        """Leave the group and drop the subscription. If `auto_commit` is on, commit the positions first."""
        self._usable()
        if self._session.subscription is not None:
            self._session.leave("it unsubscribes")

    def poll(self, timeout_s: float = 0.5) -> list[ConsumerRecord]:
        """Return up to `max_records` records, or none if no record arrives within `timeout_s`.

        Also joins the group if necessary, and calls the rebalance listener. If `poll` is not called for more than
        `max_poll_interval_s`, the consumer leaves the group.

        Raises:
            GroupFailed: The coordinator refuses this consumer.
            KafkaError: A partition cannot be read, for example OFFSET_OUT_OF_RANGE.
            ConnectionFailed: No broker has been reached yet. After a first success, `poll` keeps trying instead of
                raising this error.
        """
        self._usable()
        if self._session.subscription is None:
            raise ValueError("nothing is subscribed; call subscribe() with names of topics or a pattern first")
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                stable = self._session.step(deadline)
                self._find_positions()
                self._was_connected = True
            except ConnectionFailed as error:
                if not self._was_connected:
                    raise
                log.info("group %s: retrying: %s", self.group_id, error)
                stable = self._session.is_stable
            # While positions were looked up, the response to a commit may have said that this member was removed.
            if (stable or self._session.cooperative) and self._session.membership.is_member:
                records = self._records(deadline, stable)
                if records:
                    return records
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            waits = self._session.membership.in_rebalance or (stable and self._assigned.to_fetch(time.monotonic()))
            if not waits:
                time.sleep(min(left, BACKOFF_S / 2))

    def _records(self, deadline: float, stable: bool) -> list[ConsumerRecord]:
        """Return records that were fetched before. If there are none, send a Fetch and return the records that arrive.

        Wait for records up to `deadline` and `max_wait_ms`, but only up to JOINING_WAIT_S during a rebalance (`stable`
        is False).
        """
        records = self._assigned.hand_out(self._max_records)
        if not records:
            wait_s = max(0.0, deadline - time.monotonic())
            wait_s = min(wait_s, self._max_wait_ms / 1000 if stable else JOINING_WAIT_S)
            self._fetcher.fetch(int(wait_s * 1000))
            records = self._assigned.hand_out(self._max_records)
        return records

    # Positions

    def position(self, topic: str, partition: int) -> int:
        """Return the position in an assigned partition: the offset of the next record to return.

        The position is looked up if necessary. Raise KafkaError REQUEST_TIMED_OUT if it is not found within the time
        limit, and ValueError if the partition is not assigned.
        """
        self._usable()
        state = self._assigned.state((topic, partition))
        deadline = time.monotonic() + self.cluster.timeout_s
        while state.position is None:
            self._find_positions()
            if state.position is None and time.monotonic() >= deadline:
                raise KafkaError(Errors.REQUEST_TIMED_OUT, f"the position of {topic}-{partition} was not found in time")
            if state.position is None:
                time.sleep(BACKOFF_S / 2)
        return state.position

    def positions(self) -> dict[TopicPartition, int]:
        """Return the position in each assigned partition, without partitions whose position is not known yet."""
        return self._assigned.positions()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Set the position in an assigned partition to `offset`. Raise ValueError if the partition is not assigned.

        The next record returned has this offset or, if there is no such record, the next higher offset.
        """
        if offset < 0:
            raise ValueError(f"the offset to seek in {topic}-{partition} is {offset}; an offset is 0 or more")
        self._assigned.state((topic, partition)).seek(offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Move the position to the earliest record in each of these assigned partitions (None: in all)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Move the position to the end of each of these assigned partitions (None: of all)."""
        self._reset(partitions, LATEST)

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Move each assigned partition's position to its first record at or after `timestamp` (ms), or to its end."""
        self._reset(None, timestamp)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause these assigned partitions: `poll` returns no records of them until `resume`.

        The member stays in the group.
        """
        for where in partitions:
            self._assigned.state(where).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End the pause of these assigned partitions, so that `poll` returns their records again."""
        for where in partitions:
            self._assigned.state(where).paused = False

    def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the log start offset of each of these partitions (None: of all assigned ones)."""
        return self._bounds(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the high watermark of each of these partitions (None: of all assigned ones).

        With read_committed, return the last stable offset instead.
        """
        return self._bounds(partitions, LATEST)

    def _bounds(self, partitions: Iterable[TopicPartition] | None, at: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self._assigned.states if partitions is None else partitions, at)
        return {where: one.offset for where, one in self._admin.offsets(wanted, isolation=self._isolation).items()}

    def _reset(self, partitions: Iterable[TopicPartition] | None, to: int) -> None:
        for where in list(self._assigned.states if partitions is None else partitions):
            self._assigned.state(where).reset(to)

    def _find_positions(self) -> None:
        """Look up the positions that are not known: the committed offset, or without one what `auto_offset_reset` says.

        A position that cannot be found now because of a retriable error is looked up again by a later call. Raise
        KafkaError for any other error, and if there is no committed offset and `auto_offset_reset` is "none".
        """
        missing = self._assigned.without_position(time.monotonic())
        committed = [where for where in missing if self._assigned.states[where].reset_to is None]
        if committed and time.monotonic() >= self._fetch_offsets_at:
            try:
                found = self._offsets.fetch_now(committed)
            except KafkaError as error:
                if not self._session.link.may_retry(error):
                    raise
                self._fetch_offsets_at = time.monotonic() + BACKOFF_S
                return
            for where in committed:
                state = self._assigned.states[where]
                if where in found:
                    state.seek(found[where].offset)
                elif self._reset_to is not None:
                    state.reset(self._reset_to)
                else:
                    raise KafkaError(
                        Errors.OFFSET_OUT_OF_RANGE,
                        f"group {self.group_id!r} has no committed offset in {where[0]}-{where[1]}; seek to one, or "
                        "choose auto_offset_reset earliest or latest",
                    )
        to_reset = [where for where in missing if self._assigned.states[where].reset_to is not None]
        if to_reset:
            self._fetcher.reset(to_reset)

    # Committed offsets

    def commit(self, offsets: Offsets | None = None, *, timeout_s: float | None = None) -> None:
        """Commit offsets, and wait for the response. An offset is that of the next record to read.

        Args:
            offsets: None: the positions after all records that `poll` has returned.
            timeout_s: The time limit, with all retries. None: that of the consumer.
        Raises:
            CommitFailed: The partitions belong to other members by now, or a rebalance is in progress.
            KafkaError: The broker refuses the offsets, for example with OFFSET_METADATA_TOO_LARGE.
            ConnectionFailed: The coordinator was not reached in time.
        """
        self._usable()
        wanted = self._assigned.committable() if offsets is None else with_metadata(offsets)
        if wanted:
            self._offsets.commit(wanted, timeout_s)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> None:
        """Commit offsets without waiting for the response and without retries. `offsets` are as for `commit`.

        A later `poll` or `commit` calls `callback` with the offsets and None after a success, or with the offsets and
        the error. If the request cannot be sent, `callback` is called at once.
        """
        self._usable()
        wanted = self._assigned.committable() if offsets is None else with_metadata(offsets)

        def done(error: Exception | None) -> None:
            if callback is not None:
                callback(wanted, error)
            elif error is not None:
                log.warning("%s", error)

        if not wanted:
            done(None)
            return
        try:
            self._offsets.send(wanted, done)
        except (ClientError, KafkaError) as error:
            done(error)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offset of each of these partitions, without partitions that have none."""
        self._usable()
        return self._offsets.fetch(partitions)

    # Membership

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Let the next `poll` rejoin the group, which makes the whole group rebalance."""
        self._session.membership.must_join(reason)

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Leave the group and close all connections. A static member does not leave the group.

        If `auto_commit` is on, commit the positions first. The listener is called for the partitions that are given up.
        """
        if self._closed:
            return
        try:
            if self._session.subscription is not None:
                self._session.leave("it is closed", timeout_s)
        finally:
            self._closed = True
            self._session.close()
            self.cluster.close()

    def _usable(self) -> None:
        """Raise ValueError if the consumer is closed."""
        if self._closed:
            raise ValueError(f"this consumer of group {self.group_id!r} is closed; make a new one")
