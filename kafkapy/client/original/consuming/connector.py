"""The high-level consumer of Kafka 0.7 to 0.10, whose groups are formed through ZooKeeper.

Source: ZookeeperConsumerConnector of Kafka 0.8.2. Consumers of Kafka and of kafkapy can be members of the same group.
Imports kazoo.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kazoo.exceptions import AuthFailedError, ConnectionClosedError, KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.administration.admin import LATEST
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.consuming.fetchers import Fetchers
from kafkapy.client.original.consuming.problem_log import ProblemLog
from kafkapy.client.original.consuming.rebalance import Rebalancer
from kafkapy.client.original.consuming.session_clock import SessionClock
from kafkapy.client.original.consuming.settings import consumer_settings
from kafkapy.client.original.consuming.source_cluster import SourceCluster
from kafkapy.client.original.consuming.streams import Decoder, OwnedPartition, Stream
from kafkapy.client.original.errors import ConsumerIdTaken, OwnershipLost, RebalanceFailed
from kafkapy.client.original.filters import TopicFilter
from kafkapy.client.original.znodes.subscriptions import Subscription
from kafkapy.errors import KafkaError
from kafkapy.metadata.zookeeper.client import named, refused_login

log = logging.getLogger(__name__)

# Errors that may be gone at the next attempt.
_TRANSIENT = (KazooException, KazooTimeoutError, ClientError, KafkaError)

# The pause, which a change in ZooKeeper ends, before rebalancing is tried again after all its tries failed:
# rebalance.backoff.ms may be 0. Kafka waits for a change without limit.
_PAUSE_S = 1.0

_NOT_COMMITTED = "offsets are not committed"
_NOT_BALANCED = "rebalancing failed"


class RebalanceListener(Protocol):
    """A callback for partitions that this member is about to give up, in a rebalance or at shutdown.

    When the callback is called, the streams return no more records of these partitions, but this member still owns
    them, so that work in progress can be finished and committed. The callback is not called after a session expiry,
    when other members may already own the partitions.
    Source: ConsumerRebalanceListener of Kafka 0.8.2.
    """

    def before_release(self, partitions: list[TopicPartition]) -> None:
        """Finish the work on these partitions before other members can own them.

        An exception is logged, and prevents the auto-commit of these partitions.
        """


class ConsumerConnector:
    """A member of a consumer group, from the creation of its streams until `shutdown`.

    Its methods may be called by any thread, but each stream is for one thread. Streams can be created once.

    Args:
        properties: As in Kafka's consumer.properties: zookeeper.connect, group.id, ...
    Raises:
        ConfigError: A setting is not valid.
        ZooKeeperError: ZooKeeper cannot be reached at zookeeper.connect, or has no Kafka cluster there.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.settings = settings = consumer_settings(properties)
        self.consumer_id = f"{settings.group_id}_{settings.consumer_id or _unique()}"
        self._problems = ProblemLog(log, self.consumer_id)
        self._rebalancer: Rebalancer | None = None
        self._source = SourceCluster(settings, self._on_state)
        self._tree = self._source.tree
        self._clock = SessionClock(self.consumer_id, self._source.session_timeout_s, self._session_lives)
        self._fetchers = Fetchers(settings, self._source.brokers())
        self._stream_of: Callable[[str, int], Stream] = _no_streams
        self._listener: RebalanceListener | None = None
        self._on_claim: Callable[[list[OwnedPartition]], None] | None = None
        self._streams: list[Stream] = []
        self._closing = threading.Event()
        self._gave_up = threading.Event()  # set by `shutdown` when this member has given up its partitions
        self._threads: list[threading.Thread] = []
        # Hold this lock to keep the set of owned partitions unchanged, so that no commit overwrites a new owner's.
        self._ownership = threading.RLock()
        self._held: dict[Partition, OwnedPartition] = {}
        self._committed: dict[Partition, int] = {}
        self._clock_thread = self._start(self._keep_clock)

    def __enter__(self) -> ConsumerConnector:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def create_message_streams(
        self,
        counts: Mapping[str, int],
        *,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
        rebalance_listener: RebalanceListener | None = None,
    ) -> dict[str, list[Stream]]:
        """Join the group. Return, for each topic, a list with the number of streams given in `counts`.

        Raises:
            RebalanceFailed: Another consumer does not give up partitions that are assigned to this consumer.
            ConsumerIdTaken: Another consumer has the same consumer.id.
            ValueError: A number of streams is less than 1.
        """
        if wrong := [f"{topic!r}: {count}" for topic, count in counts.items() if count < 1]:
            raise ValueError(f"a topic needs at least 1 stream, not {', '.join(wrong)}")
        new_streams = {topic: self._make(count, key_decoder, value_decoder) for topic, count in counts.items()}
        self._listener = rebalance_listener
        self._join(Subscription(dict(counts)), lambda topic, number: new_streams[topic][number])
        return new_streams

    def create_message_streams_by_filter(
        self,
        topics: TopicFilter,
        count: int = 1,
        *,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
        rebalance_listener: RebalanceListener | None = None,
        on_claim: Callable[[list[OwnedPartition]], None] | None = None,
    ) -> list[Stream]:
        """Join the group. Return `count` streams of all topics that the filter allows, also topics created later.

        Raises the errors of `create_message_streams`.

        Args:
            on_claim: Called with newly owned partitions by the thread that claims them. The partitions are not read
                before `seek` sets their position. The callback must neither block nor call the connector. Similar to
                beforeStartingFetchers of Kafka 0.10.
        """
        if count < 1:
            raise ValueError(f"a consumer needs at least 1 stream, not {count}")
        new_streams = self._make(count, key_decoder, value_decoder)
        self._listener, self._on_claim = rebalance_listener, on_claim
        self._join(Subscription({}, topics, count), lambda _, number: new_streams[number])
        return new_streams

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the position of each owned partition, the offset after the last returned record, or the given offsets.

        Given offsets are those of the next records to read; use them with auto.commit.enable=false. Partitions that
        this member does not own are skipped.

        Raises KafkaError, ClientError or KazooException, among them OwnershipLost.
        """
        if offsets is not None:
            self._source.refuse_07("commit offsets of numbered partitions")
            self.commit_named({(topic, str(number)): offset for (topic, number), offset in offsets.items()})
            return
        with self._ownership:
            self._check_session()
            self._commit(list(self._held.values()))

    def commit_named(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the given offsets, as `commit_offsets` does. Partitions have their names in ZooKeeper, which in Kafka
        0.7 are BROKER-NUMBER."""
        with self._ownership:
            self._check_session()
            owned = {where: offset for where, offset in offsets.items() if where in self._held}
            for where, offset in owned.items():
                self._held[where].stream.mark(self._held[where], offset)
            self._commit_at(owned)

    @property
    def is_of_07(self) -> bool:
        """True if the brokers are of Kafka 0.7."""
        return self._source.is_07

    def partitions_of(self, topic: str) -> list[str]:
        """Return the names of a topic's partitions in ZooKeeper. Raises KazooException or KazooTimeoutError."""
        return self._tree.cluster.partitions(topic)

    def seek(self, where: TopicPartition, offset: int | None) -> OwnedPartition | None:
        """Continue reading an owned partition at an offset, or stop reading it if `offset` is None.

        Data that was already fetched is dropped. Returns the new OwnedPartition, which replaces the OwnedPartition
        passed to `on_claim`, or None if this member no longer owns the partition.
        """
        with self._ownership:
            before = self._held.get((where[0], str(where[1])))
            if before is None or before.revoked:
                return None
            before.stream.revoke([before])
            owned = OwnedPartition(before.partition, before.stream, before.consumed)
            self._held[owned.partition] = owned
            if offset is not None:
                owned.fetch_from = offset
                self._fetchers.start([owned])
            return owned

    def positions(self) -> dict[Partition, int | None]:
        """Return the offset after the last returned record of each owned partition, None if it is not known yet."""
        with self._ownership:
            return {owned.partition: owned.consumed for owned in self._held.values()}

    def committed(self, partitions: Iterable[TopicPartition], cluster: Cluster) -> dict[TopicPartition, int]:
        """Return the group's committed offsets of the given partitions, no matter which member owns them.

        Partitions without a committed offset are left out. `cluster` is the connection to the brokers, used if offsets
        are stored in Kafka. Raises ClientError, KafkaError or KazooException.
        """
        named = {(topic, str(number)): (topic, number) for topic, number in partitions}
        found = self._source.offsets_over(cluster).fetch(named)
        return {named[partition]: offset for partition, offset in found.items() if isinstance(offset, int)}

    @property
    def waits_for(self) -> str | None:
        """The reason, for log messages, why this member owns no partition; None if it owns partitions.

        The text names the current owner of a partition that is assigned to this member. The text is empty if no other
        owner blocks this member.
        """
        if self._held:
            return None
        return self._rebalancer.blocked if self._rebalancer is not None else ""

    def end_offsets(self) -> dict[Partition, int]:
        """Return the log end offset of each owned partition. Raises ClientError or KafkaError."""
        with self._ownership:
            held = list(self._held.values())
        brokers = self._source.brokers()
        try:
            brokers.look_up(held)
            return {owned.partition: brokers.edge(owned, LATEST) for owned in held}
        finally:
            brokers.close()

    def shutdown(self) -> None:
        """Close all streams, commit if auto.commit.enable, and leave the group. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._rebalancer is not None:
            self._rebalancer.wake_up.set()
        for thread in self._threads:
            thread.join(self.settings.socket_timeout_ms / 1000)
        self.stop_reading(list(self._held), lost=False)
        # Not earlier: without ticks, commits would fail after a rebalance listener that takes some seconds.
        self._gave_up.set()
        for stream in self._streams:
            stream.close()
        self._source.close()
        self._fetchers.close()
        self._clock_thread.join(self.settings.socket_timeout_ms / 1000)

    def open_cluster(self) -> Cluster:
        """Return a new Cluster for the brokers registered in ZooKeeper.

        Raises ConnectionFailed, or UnsupportedByBroker if the brokers are of Kafka 0.7.
        """
        return self._source.open()

    # The methods of the protocol PartitionReader, which the rebalancer calls

    def stop_reading(self, partitions: list[Partition], *, lost: bool) -> None:
        """Stop reading partitions. Unless they are lost, call the rebalance listener, then auto-commit their positions.

        `lost` is True after a session expiry, when other members may already own the partitions.
        """
        with self._ownership:
            gone = [self._held[partition] for partition in partitions if partition in self._held]
            for stream in {owned.stream for owned in gone}:
                stream.revoke([owned for owned in gone if owned.stream is stream], lost=lost)
        # Call the listener without the lock: it may wait for a thread that is about to commit.
        ended = not lost and self._tell_listener(gone)
        with self._ownership:
            try:
                if ended and self.settings.auto_commit_enable:
                    self._check_session()
                    self._commit(gone)
            except _TRANSIENT as error:
                self._problems.report(_NOT_COMMITTED, self._message(error))
            for partition in partitions:
                self._held.pop(partition, None)
                self._committed.pop(partition, None)

    def start_reading(self, partitions: Mapping[Partition, Thread]) -> None:
        """Start reading newly claimed partitions at their committed offsets.

        Each partition is read in the stream of the consumer thread that owns the partition. Raises the errors of the
        offset store.
        """
        if not partitions:
            return
        with self._ownership:
            found = self._source.offsets().fetch(partitions)
            begun = []
            for partition, thread in partitions.items():
                offset = found[partition]
                stream = self._stream_of(partition[0], thread.number)
                owned = OwnedPartition(partition, stream, offset if isinstance(offset, int) else None)
                self._held[partition] = owned
                if isinstance(offset, KafkaError):
                    stream.fail(owned, offset)
                    continue
                # With dual commits, only one of Kafka and ZooKeeper may have this offset. So the first commit writes it
                # to both, even if nothing new was read: a member that reads offsets only from Kafka must find it there.
                if offset is not None and not self.settings.dual_commit:
                    self._committed[partition] = offset
                begun.append(owned)
            if self._on_claim is not None:
                self._on_claim(begun)
            else:
                self._fetchers.start(begun)
        log.info("%s owns %s", self.consumer_id, ", ".join(sorted(str(owned) for owned in self._held.values())))

    # The functions of this member's threads

    def _join(self, subscription: Subscription, stream_of: Callable[[str, int], Stream]) -> None:
        """Start this member's threads and do the first rebalance. If that fails, shut down and raise its error.

        `stream_of` returns the stream of a topic and a thread number.
        """
        if self._rebalancer is not None:
            raise RuntimeError("a ConsumerConnector makes message streams once")
        self._stream_of = stream_of
        self._rebalancer = Rebalancer(self._tree, self.settings, self.consumer_id, subscription, self)
        try:
            self._rebalance(self._rebalancer)
            self._threads.append(self._start(self._keep_balanced))
            if self.settings.auto_commit_enable:
                self._threads.append(self._start(self._keep_committing))
        except BaseException:
            self.shutdown()
            raise

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        """Start a daemon thread that runs `work`, and return it."""
        thread = threading.Thread(target=work, name=f"kafkapy{work.__name__}-{self.consumer_id}", daemon=True)
        thread.start()
        return thread

    def _rebalance(self, rebalancer: Rebalancer) -> None:
        """Rebalance, retrying after a back-off. Raise RebalanceFailed if no attempt succeeds.

        There are at least rebalance.max.retries attempts, and more if changes in ZooKeeper cut the back-off short.
        """
        problem = ""
        tries = 0
        backoff_s = self.settings.rebalance_backoff_ms / 1000
        # Changes in ZooKeeper cut the back-off short. Until this deadline the previous owner may still release its
        # partitions, even if many changes use up the retries.
        deadline = time.monotonic() + self.settings.rebalance_max_retries * backoff_s
        while tries < self.settings.rebalance_max_retries or time.monotonic() < deadline:
            tries += 1
            try:
                if rebalancer.attempt():
                    self._problems.resolved(_NOT_BALANCED)
                    return
                problem = rebalancer.blocked or problem
            except ConsumerIdTaken:
                raise
            except _TRANSIENT as error:
                problem = self._message(error)
                self._problems.report(_NOT_BALANCED, problem, level=logging.INFO)
            rebalancer.wake_up.wait(backoff_s)
            if self._closing.is_set():
                return
        raise RebalanceFailed(
            f"{self.consumer_id} cannot rebalance after {tries} tries (rebalance.max.retries): {problem}"
        )

    def _keep_balanced(self) -> None:
        """Rebalance after every change in ZooKeeper, until shutdown. This is a thread's function."""
        rebalancer = self._rebalancer
        assert rebalancer is not None
        failed = False
        while True:
            rebalancer.wake_up.wait()
            if self._closing.is_set():
                return
            try:
                self._rebalance(rebalancer)
                failed = False
            except ClientError as error:
                log.log(logging.DEBUG if failed else logging.ERROR, "%s Retrying.", error)
                failed = True
                rebalancer.wake_up.wait(_PAUSE_S)
                rebalancer.wake_up.set()

    def _keep_committing(self) -> None:
        """Auto-commit every auto.commit.interval.ms, until shutdown. This is a thread's function."""
        while not self._closing.wait(self.settings.auto_commit_interval_ms / 1000):
            try:
                self.commit_offsets()
                self._problems.resolved(_NOT_COMMITTED)
            except _TRANSIENT as error:
                self._problems.report(_NOT_COMMITTED, self._message(error))

    def _keep_clock(self) -> None:
        """Tick the session clock, which notices that this process was stopped, until the partitions are given up.

        Meanwhile, also connect again after a refused login. This is a thread's function.
        """
        self._clock.run(self._gave_up, self._source.revive)

    def _session_lives(self) -> bool:
        """Return True if ZooKeeper still has the session in which this member claimed its partitions."""
        try:
            self._tree.has_brokers()  # any request will do: ZooKeeper does not respond to an expired session
        except _TRANSIENT:
            return False
        return self._rebalancer is None or self._rebalancer.session in (None, self._tree.session)

    def _on_state(self, _state: str) -> None:
        """Wake up the rebalance thread after the ZooKeeper connection is lost or re-established."""
        if self._rebalancer is not None:
            self._rebalancer.wake_up.set()

    def _tell_listener(self, gone: list[OwnedPartition]) -> bool:
        """Call the user's rebalance listener with the partitions to give up.

        Return False if the listener raised an error.
        """
        if self._listener is None or not gone:
            return True
        try:
            self._listener.before_release([owned.where for owned in gone])
        except Exception:  # the user's code must not stop other members from getting these partitions
            log.exception("%s: the rebalance listener failed", self.consumer_id)
            return False
        return True

    def _check_session(self) -> None:
        """Raise OwnershipLost unless this member surely still owns its partitions."""
        if self._held and self._rebalancer is not None and self._rebalancer.session != self._tree.session:
            raise OwnershipLost(f"{self.consumer_id} has lost its ZooKeeper session and rejoins the group")
        if self._held and not self._clock.is_good():
            raise OwnershipLost(
                f"{self.consumer_id} was stopped for a while, and does not know yet whether its ZooKeeper session is "
                "still alive"
            )

    def _commit(self, owned: list[OwnedPartition]) -> None:
        """Commit the positions of the given owned partitions, except positions that are not known yet."""
        self._commit_at({one.partition: one.consumed for one in owned if one.consumed is not None})

    def _commit_at(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the given offsets, except those equal to the last committed offset of their partition."""
        new = {where: at for where, at in offsets.items() if self._committed.get(where) != at}
        if new:
            self._source.offsets().commit(new)
            self._committed.update(new)

    def _message(self, error: Exception) -> str:
        """Return an error's text for the log. An error of kazoo often has no text, so its name is returned."""
        # After a refused login kazoo closes its client, and until `revive` each request fails because of that.
        if self._source.logs_in and isinstance(error, AuthFailedError | ConnectionClosedError):
            return refused_login(self.settings.zookeeper_connect)
        if isinstance(error, KazooException | KazooTimeoutError):
            return f"ZooKeeper: {named(error)}"
        return str(error)

    def _make(self, count: int, key_decoder: Decoder | None, value_decoder: Decoder | None) -> list[Stream]:
        """Return `count` new streams, which `shutdown` closes."""
        made = [
            Stream(self.settings.consumer_timeout_ms, key_decoder, value_decoder, self._clock.is_good)
            for _ in range(count)
        ]
        self._streams += made
        return made


def _no_streams(topic: str, number: int) -> Stream:
    raise LookupError(f"{topic}: no stream {number}")


def _unique() -> str:
    """Return a unique consumer id like Kafka's: host name, time in ms, and random hex digits."""
    return f"{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"
