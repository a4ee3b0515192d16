"""The high-level consumer of Kafka 0.7 to 0.10: a group whose members find each other in ZooKeeper.

Source: ZookeeperConsumerConnector of Kafka 0.8.2, in whose groups it can be. Imports kazoo.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client.admin import LATEST
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.errors import ConsumerIdTaken, OwnershipLost, RebalanceFailed
from kafkapy.client.original.fetchers import Fetchers
from kafkapy.client.original.filters import TopicFilter
from kafkapy.client.original.rebalance import Rebalancer
from kafkapy.client.original.settings import consumer_settings
from kafkapy.client.original.source_cluster import SourceCluster
from kafkapy.client.original.streams import Decoder, OwnedPartition, Stream
from kafkapy.client.original.subscriptions import Subscription
from kafkapy.errors import KafkaError

log = logging.getLogger(__name__)

# What may be over at the next try.
_Passing = (KazooException, KazooTimeoutError, ClientError, KafkaError)


class RebalanceListener(Protocol):
    """Is told of partitions that are about to be given up: at a rebalance and at shutdown, by the thread that does it.

    No chunk or record of them is handed out any more, but they are ours still, so that what is under way can be ended
    and committed. Not called when the session with ZooKeeper is over, and they are others' already.
    Source: ConsumerRebalanceListener of Kafka 0.8.2.
    """

    def before_release(self, partitions: list[TopicPartition]) -> None:
        """What it raises is logged; then nothing is committed for these partitions by auto.commit.enable."""


class ConsumerConnector:
    """A member of a group, from its first streams on until `shutdown`.

    Its methods may be called by any thread; each stream is for one. Streams may be made once.

    Args:
        properties: as in Kafka's consumer.properties: zookeeper.connect, group.id, ...
    Raises:
        ConfigError: a setting that cannot be used.
        KeeperError: nobody answers at zookeeper.connect, or no cluster lives there.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.settings = settings = consumer_settings(properties)
        self.consumer_id = f"{settings.group_id}_{settings.consumer_id or _unique()}"
        self._rebalancer: Rebalancer | None = None
        self._source = SourceCluster(settings, self._on_state)
        self._tree = self._source.tree
        self._fetchers = Fetchers(settings, self._source.brokers())
        self._stream_of: Callable[[str, int], Stream] = _no_streams
        self._listener: RebalanceListener | None = None
        self._on_claim: Callable[[list[OwnedPartition]], None] | None = None
        self._streams: list[Stream] = []
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        # While it is held nothing that is ours becomes another's, so that no commit is behind that of the next owner.
        self._holding = threading.RLock()
        self._held: dict[Partition, OwnedPartition] = {}
        self._committed: dict[Partition, int] = {}

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
        """So many streams of each topic, which begin when the partitions are ours.

        Raises:
            RebalanceFailed: another consumer does not let go of what we are to have.
            ConsumerIdTaken: consumer.id is another's.
        """
        if wrong := [f"{topic!r}: {count}" for topic, count in counts.items() if count < 1]:
            raise ValueError(f"a topic needs 1 stream at least, not {', '.join(wrong)}")
        made = {topic: self._make(count, key_decoder, value_decoder) for topic, count in counts.items()}
        self._listener = rebalance_listener
        self._join(Subscription(dict(counts)), lambda topic, number: made[topic][number])
        return made

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
        """Streams of all topics that the filter allows, also of those that are made later. Raises as the other.

        Args:
            on_claim: is told of partitions that have become ours, by the thread that claims them. They are not read
                then until `seek` says where; it must not wait, nor call the connector. Kafka's beforeStartingFetchers
                of 0.10 is near to it.
        """
        if count < 1:
            raise ValueError(f"a consumer needs 1 stream at least, not {count}")
        made = self._make(count, key_decoder, value_decoder)
        self._listener, self._on_claim = rebalance_listener, on_claim
        self._join(Subscription({}, topics, count), lambda _, number: made[number])
        return made

    def commit_offsets(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Everything that the streams have handed out is done; or, given `offsets`, in each of these partitions what
        is before the offset, and nothing more (auto.commit.enable should be false then). Those that are not ours now
        are left out.

        Raises KafkaError, ClientError or KazooException, among them OwnershipLost.
        """
        with self._holding:
            self._check_session()
            if offsets is None:
                self._commit(list(self._held.values()))
                return
            self._source.refuse_07("commit offsets that are given")
            named = {(topic, str(number)): offset for (topic, number), offset in offsets.items()}
            ours = {where: offset for where, offset in named.items() if where in self._held}
            for where, offset in ours.items():
                self._held[where].stream.mark(self._held[where], offset)
            self._commit_at(ours)

    def seek(self, where: TopicPartition, offset: int | None) -> OwnedPartition | None:
        """Reads a partition from there on, or no more (None), and hands out nothing that was read of it before.

        Returns what the chunks are of from now on, which takes the place of what `on_claim` told; None when the
        partition is not ours any more.
        """
        with self._holding:
            before = self._held.get((where[0], str(where[1])))
            if before is None or before.taken_away:
                return None
            before.stream.take_away([before])
            owned = OwnedPartition(before.partition, before.stream, before.consumed)
            self._held[owned.partition] = owned
            if offset is not None:
                owned.fetch_from = offset
                self._fetchers.start([owned])
            return owned

    def positions(self) -> dict[Partition, int | None]:
        """Behind what was handed out of each partition that is ours; None until it is known where to begin."""
        with self._holding:
            return {owned.partition: owned.consumed for owned in self._held.values()}

    def end_offsets(self) -> dict[Partition, int]:
        """Where the partitions that are ours end now. Raises ClientError, KafkaError."""
        with self._holding:
            held = list(self._held.values())
        brokers = self._source.brokers()
        try:
            brokers.look_up(held)
            return {owned.partition: brokers.edge(owned, LATEST) for owned in held}
        finally:
            brokers.close()

    def shutdown(self) -> None:
        """Ends all streams, commits if auto.commit.enable, and leaves the group. Does nothing the second time."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._rebalancer is not None:
            self._rebalancer.news.set()
        for thread in self._threads:
            thread.join(self.settings.socket_timeout_ms / 1000)
        self.let_go(list(self._held), lost=False)
        for stream in self._streams:
            stream.close()
        self._source.close()
        self._fetchers.close()

    def open_cluster(self) -> Cluster:
        """Connects to the brokers that are there now, for who wants to ask them more. Raises ConnectionFailed;
        UnsupportedByBroker for those of Kafka 0.7."""
        return self._source.open()

    # What the rebalancer asks for

    def let_go(self, partitions: list[Partition], *, lost: bool) -> None:
        with self._holding:
            gone = [self._held[partition] for partition in partitions if partition in self._held]
            for stream in {owned.stream for owned in gone}:
                stream.take_away([owned for owned in gone if owned.stream is stream])
        # Without the lock: the listener may wait for a thread that is about to commit.
        ended = not lost and self._tell_listener(gone)
        with self._holding:
            try:
                if ended and self.settings.auto_commit_enable:
                    self._check_session()
                    self._commit(gone)
            except _Passing as error:
                log.error("%s: offsets are not committed: %s", self.consumer_id, error)
            for partition in partitions:
                self._held.pop(partition, None)
                self._committed.pop(partition, None)

    def take_over(self, partitions: Mapping[Partition, Thread]) -> None:
        if not partitions:
            return
        with self._holding:
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
                if offset is not None:
                    self._committed[partition] = offset
                begun.append(owned)
            if self._on_claim is not None:
                self._on_claim(begun)
            else:
                self._fetchers.start(begun)
        log.info("%s owns %s", self.consumer_id, ", ".join(sorted(str(owned) for owned in self._held.values())))

    # The member's own threads

    def _join(self, subscription: Subscription, stream_of: Callable[[str, int], Stream]) -> None:
        if self._rebalancer is not None:
            raise RuntimeError("a ConsumerConnector makes message streams once")
        self._stream_of = stream_of
        self._rebalancer = Rebalancer(self._tree, self.settings, self.consumer_id, subscription, self)
        try:
            self._rebalance(self._rebalancer)
        except BaseException:
            self.shutdown()
            raise
        work: list[Callable[[], None]] = [self._keep_balanced]
        if self.settings.auto_commit_enable:
            work.append(self._keep_committing)
        for one in work:
            thread = threading.Thread(target=one, name=f"kafkapy{one.__name__}-{self.consumer_id}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _rebalance(self, rebalancer: Rebalancer) -> None:
        """Raises RebalanceFailed when no try succeeds."""
        problem = ""
        tries = 0
        backoff_s = self.settings.rebalance_backoff_ms / 1000
        # News cut the back-off short, and many of them are not to use up the time that a former owner has.
        deadline = time.monotonic() + self.settings.rebalance_max_retries * backoff_s
        while tries < self.settings.rebalance_max_retries or time.monotonic() < deadline:
            tries += 1
            try:
                if rebalancer.attempt():
                    return
                problem = rebalancer.blocked or problem
            except ConsumerIdTaken:
                raise
            except _Passing as error:
                problem = str(error) or type(error).__name__
                log.info("%s: rebalancing failed: %s", self.consumer_id, problem)
            rebalancer.news.wait(backoff_s)
            if self._closing.is_set():
                return
        raise RebalanceFailed(
            f"{self.consumer_id} cannot rebalance after {tries} tries (rebalance.max.retries): {problem}"
        )

    def _keep_balanced(self) -> None:
        rebalancer = self._rebalancer
        assert rebalancer is not None
        while True:
            rebalancer.news.wait()
            if self._closing.is_set():
                return
            try:
                self._rebalance(rebalancer)
            except ClientError as error:
                log.error("%s It goes on trying.", error)
                rebalancer.news.set()

    def _keep_committing(self) -> None:
        while not self._closing.wait(self.settings.auto_commit_interval_ms / 1000):
            try:
                self.commit_offsets()
            except _Passing as error:
                log.error("%s: offsets are not committed: %s", self.consumer_id, error)

    def _on_state(self, _state: str) -> None:
        if self._rebalancer is not None:
            self._rebalancer.news.set()

    def _tell_listener(self, gone: list[OwnedPartition]) -> bool:
        """Whether it is done with them."""
        if self._listener is None or not gone:
            return True
        try:
            self._listener.before_release([owned.where for owned in gone])
        except Exception:  # it is the user's: it must not keep others from what is to be theirs
            log.exception("%s: the rebalance listener failed", self.consumer_id)
            return False
        return True

    def _check_session(self) -> None:
        if self._held and self._rebalancer is not None and self._rebalancer.session != self._tree.session:
            raise OwnershipLost(f"{self.consumer_id} has lost its session with ZooKeeper, and joins the group anew")

    def _commit(self, owned: list[OwnedPartition]) -> None:
        self._commit_at({one.partition: one.consumed for one in owned if one.consumed is not None})

    def _commit_at(self, offsets: Mapping[Partition, int]) -> None:
        new = {where: at for where, at in offsets.items() if self._committed.get(where) != at}
        if new:
            self._source.offsets().commit(new)
            self._committed.update(new)

    def _make(self, count: int, key_decoder: Decoder | None, value_decoder: Decoder | None) -> list[Stream]:
        made = [Stream(self.settings.consumer_timeout_ms, key_decoder, value_decoder) for _ in range(count)]
        self._streams += made
        return made


def _no_streams(topic: str, number: int) -> Stream:
    raise LookupError(f"{topic}: no stream {number}")


def _unique() -> str:
    return f"{socket.gethostname()}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"
