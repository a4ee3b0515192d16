"""The mirror's member of a ZooKeeper consumer group in the source cluster. Imports kazoo.

The connector gives up partitions in its own thread. That thread waits until the polling thread has copied and committed
the records that were read from these partitions.

For exactly-once delivery, start offsets do not come from the group: the connector reads a partition only after `seek`.
Each seek returns a new OwnedPartition, so that chunks fetched after the seek can be distinguished from earlier chunks.
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
from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.client.errors import ClientError, ConnectionFailed
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.problem_log import ProblemLog
from kafkapy.client.original.consuming.streams import Chunk, OwnedPartition, Stream
from kafkapy.client.original.filters import TopicFilter
from kafkapy.errors import KafkaError
from kafkapy.mirror.counts import Waiting
from kafkapy.mirror.group_status import lag_of
from kafkapy.mirror.member import Listener, NotCommitted, Piece
from kafkapy.mirror.source_settings import ZooKeeperSource

log = logging.getLogger(__name__)

POLL_S = 0.1  # how often the polling thread checks whether partitions have to be given up
PIECES_PER_POLL = 16  # the most pieces that a poll returns
ENDS_INTERVAL_S = 5.0  # the interval for looking up end offsets, which the connector's fetches do not return
ENDS_RETRY_S = 60.0  # the interval after a failed lookup, as a broker that hangs stops the copying for a time-out

_WAITS = "the copying waits for ZooKeeper"  # a problem, for log lines


class _Release:
    """Partitions that the connector's thread is about to give up.

    The event `done` is set when the polling thread has committed the offsets of these partitions.
    """

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions
        self.done = threading.Event()


class ZooKeeperMember:
    """A member of a ZooKeeper group in the source: implements SeekingMember with a ConsumerConnector.

    With `seeks`, partitions are read only after `seek`.
    """

    def __init__(
        self,
        settings: ZooKeeperSource,
        topics: TopicFilter,
        *,
        seeks: bool = False,
        connector: ConsumerConnector | None = None,
    ) -> None:
        """`connector` is a ConsumerConnector with the settings' properties. None: construct it."""
        self._seeks = seeks
        self._settings = settings
        self._topics = topics
        self._connector = connector or ConsumerConnector(settings.properties)
        self._problems = ProblemLog(log, settings.file)
        self._listener: Listener | None = None
        self._stream: Stream | None = None
        self._cluster: Cluster | None = None
        self._changes: deque[_Release | list[OwnedPartition]] = deque()  # lists are newly owned partitions
        self._unread: Chunk | None = None  # a chunk that `poll` has taken and could not return yet
        self._closing = False
        self._positions: dict[TopicPartition, int] = {}
        self._owned: dict[TopicPartition, OwnedPartition] = {}  # partitions that are read, or claimed and not read yet
        self._ends: Mapping[TopicPartition, int] = {}
        self._ask_ends_at = 0.0
        self._group_lag: int | None = None
        self._ask_group_lag_at = 0.0

    def cluster_id(self) -> str | None:
        cluster = self._brokers()
        cluster.refresh([])
        return cluster.cluster_id

    def open(self, listener: Listener) -> None:
        self._listener = listener
        (self._stream,) = self._connector.create_message_streams_by_filter(
            self._topics, rebalance_listener=self, on_claim=self._changes.append if self._seeks else None
        )

    def before_release(self, partitions: list[TopicPartition]) -> None:
        """Wait until the polling thread has copied and committed the records read from these partitions.

        Called by the connector's thread before it gives up the partitions. After socket.timeout.ms, log a warning and
        return.
        """
        release = _Release(partitions)
        self._changes.append(release)
        timeout_s = self._connector.settings.socket_timeout_ms / 1000
        waited = 0.0
        while not self._closing and not release.done.wait(POLL_S):
            waited += POLL_S
            if waited >= timeout_s:
                text = "partitions are given up before all records read from them are copied; they are read again"
                log.warning("%s: %s", self._settings.file, text)
                return

    def poll(self, timeout_s: float) -> Sequence[Piece]:
        pieces: list[Piece] = []
        left = timeout_s
        while True:
            self._report_lost()
            self._report_changes()
            chunk = self._next_chunk(max(0.0, min(POLL_S, left)))
            left -= POLL_S
            while chunk is not None:
                if not self._seeks or self._owned.get(chunk.where) is chunk.owned:
                    try:
                        piece = self._piece(chunk)
                    except ConnectionFailed as error:
                        self._problems.report(_WAITS, str(error), level=logging.INFO)
                        self._unread = chunk
                        time.sleep(POLL_S)
                        return pieces
                    self._problems.resolved(_WAITS)
                    pieces.append(piece)
                    self._positions[piece.where] = piece.after
                    self._owned[piece.where] = chunk.owned
                chunk = self._next_chunk(0) if len(pieces) < PIECES_PER_POLL else None
            if pieces or left <= 0:
                return pieces

    def _next_chunk(self, timeout_s: float) -> Chunk | None:
        """Return the chunk that `poll` could not return, if it is still owned, else the next chunk of the stream."""
        assert self._stream is not None
        chunk, self._unread = self._unread, None
        if chunk is not None and not chunk.owned.revoked:
            return chunk
        return self._stream.next_chunk(timeout_s)

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
            self._close_brokers()
            raise

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._commit(offsets)
        except (KafkaError, ClientError, KazooException, KazooTimeoutError) as error:
            raise NotCommitted(str(error) or type(error).__name__) from None

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._connector.commit_offsets(offsets)

    def partition_count(self, topic: str) -> int:
        try:
            return len(self._brokers().topic(topic, refresh=True).partitions)
        except ClientError:
            self._close_brokers()
            raise

    def lags(self) -> Mapping[TopicPartition, int]:
        now = time.monotonic()
        if self._positions and now >= self._ask_ends_at:
            self._ask_ends_at = now + ENDS_INTERVAL_S
            try:
                self._ends = self._end_offsets()
            except (ClientError, KafkaError) as error:
                log.info("%s: the lag is not known: %s", self._settings.file, error)
                self._ends = {}
                self._ask_ends_at = time.monotonic() + ENDS_RETRY_S
                self._close_brokers()
        positions = self._positions.items()
        return {where: max(0, self._ends[where] - at) for where, at in positions if where in self._ends}

    def _end_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the end offsets of the partitions that are read. Raises ClientError or KafkaError."""
        found = Admin(self._brokers()).offsets_now(dict.fromkeys(self._positions, LATEST))
        return {where: one.offset for where, one in found.items()}

    def waiting(self) -> Waiting | None:
        whose = self._connector.waits_for
        if whose is None:
            return None
        if time.monotonic() >= self._ask_group_lag_at:
            self._group_lag = self._look_up_group_lag()
            wait_s = ENDS_RETRY_S if self._group_lag is None else ENDS_INTERVAL_S
            self._ask_group_lag_at = time.monotonic() + wait_s
        return Waiting(f"partitions of group {self._settings.group_id}", whose, self._group_lag)

    def _look_up_group_lag(self) -> int | None:
        """Return the group's lag over all partitions of the mirrored topics, None if it is not known."""
        group = self._settings.group_id
        try:
            cluster = self._brokers()
            admin = Admin(cluster)
            topics = [topic for topic in admin.list_topics() if self._topics.allows(topic.name)]
            partitions = [(topic.name, index) for topic in topics for index in topic.partitions]
            committed = self._connector.committed(partitions, cluster)
            from_start = self._settings.settings.auto_offset_reset == "smallest"
            return lag_of(admin, partitions, committed, from_start=from_start)
        except (ClientError, KafkaError, KazooException, KazooTimeoutError) as error:
            reason = str(error) or type(error).__name__
            log.info("%s: the lag of group %s is not known: %s", self._settings.file, group, reason)
            self._close_brokers()
            return None

    def close(self) -> None:
        self._closing = True  # ends the wait in `before_release`; records that are not committed by now are read again
        self._connector.shutdown()
        self._close_brokers()

    def _brokers(self) -> Cluster:
        """Return a Cluster for the source's brokers, which is kept until an error. Raises ClientError."""
        if self._cluster is None:
            self._cluster = self._connector.open_cluster()
        return self._cluster

    def _close_brokers(self) -> None:
        """Close the cached Cluster, so that the next use reads the brokers from ZooKeeper again."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _piece(self, chunk: Chunk) -> Piece:
        """Return the Piece (the mirror's form of fetched batches) for a chunk that the connector's stream returned.

        Raises ConnectionFailed if ZooKeeper has to be asked and cannot be reached.
        """
        _, _, after = entries_end(chunk.data)
        return Piece(chunk.where, chunk.data, chunk.start, max(after, chunk.start))

    def _report_lost(self) -> None:
        """Tell the listener which partitions were lost when the ZooKeeper session expired.

        This member may already own such a partition again, after other members have committed higher offsets. Records
        that this member read before the loss must not be committed then, as the group's offset would go back.
        """
        self._lose([where for where, owned in self._owned.items() if owned.lost])

    def _report_changes(self) -> None:
        """Tell the listener about the ownership changes queued by the connector's thread.

        These are partitions to give up and newly owned partitions. For partitions to give up, the connector's thread is
        then woken up.
        """
        assert self._listener is not None
        while self._changes:
            change = self._changes.popleft()
            if isinstance(change, _Release):
                given_up = self._given_up(change.partitions)
                self._listener.before_release(given_up)
                self._forget(given_up)
                change.done.set()
            else:
                self._lose([owned.where for owned in change if owned.where in self._owned])
                self._owned.update((owned.where, owned) for owned in change)
                self._listener.on_taken([owned.where for owned in change])

    def _given_up(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the source's partitions for those that the connector gives up. Called by the polling thread."""
        return partitions

    def _lose(self, partitions: list[TopicPartition]) -> None:
        """Tell the listener that these partitions are lost, and forget them."""
        assert self._listener is not None
        if partitions:
            self._listener.on_lost(partitions)
            self._forget(partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for where in partitions:
            self._positions.pop(where, None)
            self._owned.pop(where, None)
