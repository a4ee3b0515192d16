"""A source that is read by a group in ZooKeeper. Imports kazoo.

The connector gives up partitions in a thread of its own, and waits there until the thread that polls, which has records
of them under way, has ended and committed those.

Where offsets are not the group's (exactly once), the connector reads nothing of a partition until it is told where to
begin. What `seek` gets from it is new each time, and so are the chunks known that were read since.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy._ext.entry_walk import entries_end
from kafkapy.client.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.original.connector import ConsumerConnector
from kafkapy.client.original.filters import TopicFilter
from kafkapy.client.original.streams import Chunk, OwnedPartition, Stream
from kafkapy.errors import KafkaError
from kafkapy.mirror.source_settings import ZooKeeperSource
from kafkapy.mirror.sources import Listener, NotCommitted, Piece

log = logging.getLogger(__name__)

GLANCE_S = 0.1  # how often the thread that polls looks whether partitions are to be given up
AT_ONCE = 16  # pieces a poll
ENDS_EVERY_S = 5.0  # the original's fetches do not tell how far a partition goes: that is asked now and then
ENDS_AGAIN_S = 60.0  # after nobody told: a broker that hangs takes a time-out, in which nothing is copied


class _Release:
    """Partitions that the connector's thread wants to give up; `done` when the thread that polls is through."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions
        self.done = threading.Event()


class ZooKeeperMember:
    """Args: seeks: partitions are read from where `seek` says, and not before it has."""

    def __init__(self, settings: ZooKeeperSource, topics: TopicFilter, *, seeks: bool = False) -> None:
        self._seeks = seeks
        self._settings = settings
        self._topics = topics
        self._connector = ConsumerConnector(settings.properties)
        self._listener: Listener | None = None
        self._stream: Stream | None = None
        self._cluster: Cluster | None = None
        self._news: deque[_Release | list[OwnedPartition]] = deque()  # of the connector's thread; lists: they are ours
        self._closing = False
        self._positions: dict[TopicPartition, int] = {}
        self._owned: dict[TopicPartition, OwnedPartition] = {}  # of which something was read, or is to be
        self._ends: dict[TopicPartition, int] = {}
        self._ask_ends_at = 0.0

    def cluster_id(self) -> str | None:
        cluster = self._brokers()
        cluster.refresh([])
        return cluster.cluster_id

    def open(self, listener: Listener) -> None:
        self._listener = listener
        (self._stream,) = self._connector.create_message_streams_by_filter(
            self._topics, rebalance_listener=self, on_claim=self._news.append if self._seeks else None
        )

    def before_release(self, partitions: list[TopicPartition]) -> None:
        """By the connector's thread."""
        release = _Release(partitions)
        self._news.append(release)
        patience_s = self._connector.settings.socket_timeout_ms / 1000
        waited = 0.0
        while not self._closing and not release.done.wait(GLANCE_S):
            waited += GLANCE_S
            if waited >= patience_s:
                told = "partitions are given up before what was read of them is acknowledged; it is read again"
                log.warning("%s: %s", self._settings.file, told)
                return

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        assert self._stream is not None
        pieces: list[Piece] = []
        left = timeout_s
        while True:
            self._tell_lost()
            self._tell_news()
            chunk = self._stream.next_chunk(max(0.0, min(GLANCE_S, left)))
            left -= GLANCE_S
            while chunk is not None:
                if not self._seeks or self._owned.get(chunk.where) is chunk.owned:
                    pieces.append(piece := _piece(chunk))
                    self._positions[piece.where] = piece.after
                    self._owned[piece.where] = chunk.owned
                chunk = self._stream.next_chunk(0) if len(pieces) < AT_ONCE else None
            if pieces or left <= 0:
                return pieces

    def seek(self, where: TopicPartition, offset: int | None) -> None:
        if where in self._owned and (owned := self._connector.seek(where, offset)) is not None:
            self._owned[where] = owned

    def position(self, where: TopicPartition) -> int:
        if (offset := self._owned[where].consumed) is not None:
            return offset
        at = EARLIEST if self._settings.settings.auto_offset_reset == "smallest" else LATEST
        try:
            return Admin(self._brokers()).offsets_now({where: at})[where].offset
        except ClientError:
            self._forget_brokers()
            raise

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._connector.commit_offsets(offsets)
        except (KafkaError, ClientError, KazooException, KazooTimeoutError) as error:
            raise NotCommitted(str(error) or type(error).__name__) from None

    def partition_count(self, topic: str) -> int:
        try:
            return len(self._brokers().topic(topic, refresh=True).partitions)
        except ClientError:
            self._forget_brokers()
            raise

    def lags(self) -> Mapping[TopicPartition, int]:
        now = time.monotonic()
        if self._positions and now >= self._ask_ends_at:
            self._ask_ends_at = now + ENDS_EVERY_S
            try:
                found = Admin(self._brokers()).offsets_now(dict.fromkeys(self._positions, LATEST))
                self._ends = {where: one.offset for where, one in found.items()}
            except (ClientError, KafkaError) as error:
                log.info("%s: how far it is behind is not known: %s", self._settings.file, error)
                self._ends = {}
                self._ask_ends_at = time.monotonic() + ENDS_AGAIN_S
                self._forget_brokers()
        positions = self._positions.items()
        return {where: max(0, self._ends[where] - at) for where, at in positions if where in self._ends}

    def close(self) -> None:
        self._closing = True  # whoever waits for this thread must not: what was read is committed, or given up
        self._connector.shutdown()
        self._forget_brokers()

    def _brokers(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._connector.open_cluster()
        return self._cluster

    def _forget_brokers(self) -> None:
        """Others may be there by now."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _tell_lost(self) -> None:
        """What went with the session. It may be ours again, behind what others have done meanwhile: what we have read
        before must not be committed then, for the group would go back."""
        releases = [news for news in list(self._news) if isinstance(news, _Release)]
        coming = {where for release in releases for where in release.partitions}
        self._lose([where for where, owned in self._owned.items() if owned.taken_away and where not in coming])

    def _tell_news(self) -> None:
        assert self._listener is not None
        while self._news:
            news = self._news.popleft()
            if isinstance(news, _Release):
                self._listener.before_release(news.partitions)
                self._forget(news.partitions)
                news.done.set()
            else:
                self._lose([owned.where for owned in news if owned.where in self._owned])
                self._owned.update((owned.where, owned) for owned in news)
                self._listener.on_taken([owned.where for owned in news])

    def _lose(self, partitions: list[TopicPartition]) -> None:
        assert self._listener is not None
        if partitions:
            self._listener.on_lost(partitions)
            self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._positions.pop(where, None)
            self._owned.pop(where, None)


def _piece(chunk: Chunk) -> Piece:
    _, _, after = entries_end(chunk.data)
    return Piece(chunk.where, chunk.data, chunk.start, max(after, chunk.start))
