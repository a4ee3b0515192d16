"""A consumer without a group: the caller assigns the partitions, and the consumer keeps their positions."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.administration.descriptions import FoundOffset
from kafkapy.client.cluster import BACKOFF_S, Cluster, ClusterClient, TopicPartition
from kafkapy.client.errors import ClientError
from kafkapy.client.fetched import ConsumerRecord, Isolation, isolation_level
from kafkapy.client.fetching.assigned import AssignedPartitions, Positions
from kafkapy.client.fetching.fetcher import Fetcher
from kafkapy.client.security import Security
from kafkapy.errors import Errors, KafkaError

__all__ = ["Consumer", "ConsumerRecord"]


class Consumer(ClusterClient):
    """A blocking consumer for use in one thread. A partition without a leader does not delay the other partitions.

    Args:
        cluster: A Cluster, or bootstrap servers.
        max_wait_ms, min_bytes: How long a broker waits for at least `min_bytes` before it responds.
        max_bytes, partition_bytes: The largest size of a response, and of one partition's records in it.
        out_of_range: What to do when a position is outside the partition's log: raise KafkaError, or continue at the
            earliest or latest offset.
        isolation: With read_committed, records of open and aborted transactions are not returned.
        security: The properties for TLS and login, if `cluster` has bootstrap servers; as for Cluster.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_bytes: int = 1024 * 1024,
        out_of_range: Literal["raise", "earliest", "latest"] = "raise",
        isolation: Isolation = "read_uncommitted",
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(cluster, security=security)
        self._assigned = AssignedPartitions()
        self._positions = Positions(self._assigned)
        self._admin = Admin(self.cluster)
        self._isolation = isolation_level(isolation)
        self._max_wait_ms = max_wait_ms
        self._refresh_at = 0.0  # when to ask for the leaders of partitions that had none
        self._fetcher = _StrictFetcher(
            self.cluster,
            self._assigned,
            reset_to={"raise": None, "earliest": EARLIEST, "latest": LATEST}[out_of_range],
            isolation=self._isolation,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_bytes=partition_bytes,
            rack=None,
        )

    @property
    def positions(self) -> MutableMapping[TopicPartition, int]:
        """The position (the offset of the next record) of each assigned partition.

        Setting a partition's position has the same effect as `seek`. A partition that had no leader when it was
        assigned is in this mapping only after it has got a leader.
        """
        return self._positions

    @positions.setter
    def positions(self, positions: Mapping[TopicPartition, int]) -> None:
        self._assigned.keep(positions)
        self._positions.update(positions)

    def assign(self, partitions: Iterable[TopicPartition], *, at: int = EARLIEST) -> None:
        """Assign these partitions, in place of all partitions that were assigned before.

        Each partition starts at its earliest record, or with `at=LATEST` at its end.
        """
        wanted = list(partitions)
        self._assigned.keep(())
        self._assigned.add(wanted)
        for state in self._assigned.states.values():
            state.reset(at)
        self._find_positions(self._with_leader(wanted))

    def assign_topic(self, topic: str, *, at: int = EARLIEST) -> None:
        """Assign all partitions of one topic, in place of all partitions that were assigned before.

        `at` says where to start, as for `assign`.
        """
        self.assign([(topic, index) for index in self.cluster.topic(topic).partitions], at=at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Set the position in a partition to `offset`, and assign the partition if it is not assigned yet.

        The next record returned has this offset or, if there is no such record, the next higher offset.
        """
        self._positions[topic, partition] = offset

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Move each assigned partition's position to its first record at or after `timestamp` (ms), or to its end."""
        ends = self.end_offsets()
        found = self._offsets(self._positions, timestamp)
        self._positions.update({where: one.offset if one.offset >= 0 else ends[where] for where, one in found.items()})

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the log start offset of each assigned partition."""
        return self._bounds(EARLIEST)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the high watermark of each assigned partition, or with read_committed its last stable offset."""
        return self._bounds(LATEST)

    def records(self, *, until: Mapping[TopicPartition, int] | None = None) -> Iterator[ConsumerRecord]:
        """Yield the records of all assigned partitions up to their ends, in order within each partition.

        Args:
            until: The offset to stop before, by partition. None: the end that each partition has now. To follow new
                records, call `poll` in a loop instead.
        """
        ends = dict(self.end_offsets() if until is None else until)
        while left := [where for where, end in ends.items() if self._is_before(where, end)]:
            for record in self.poll(partitions=left):
                if record.offset < ends[record.topic, record.partition]:
                    yield record

    def poll(self, *, partitions: Iterable[TopicPartition] | None = None) -> list[ConsumerRecord]:
        """Send one Fetch to each leader.

        Return the records, of which there may be none, and move the positions past them.

        Args:
            partitions: Fetch only from these assigned partitions. None: from all.
        Raises:
            KafkaError: A partition cannot be read, for example OFFSET_OUT_OF_RANGE. LEADER_NOT_AVAILABLE if none of the
                partitions has had a leader for the cluster's time limit.
            ConnectionFailed: A leader cannot be reached.
        """
        wanted = dict.fromkeys(self._assigned.states if partitions is None else partitions)
        self._find_positions(self._with_leader(wanted))
        for where, state in self._assigned.states.items():
            state.paused = where not in wanted
        self._wait_for_retry()
        self._fetcher.fetch(self._max_wait_ms)
        return self._assigned.hand_out(sys.maxsize)

    def _is_before(self, where: TopicPartition, end: int) -> bool:
        """Return True if an assigned partition has not been read up to offset `end` yet, or its position is not known.

        Return False if the partition is not assigned.
        """
        state = self._assigned.states.get(where)
        return state is not None and (state.position is None or state.position < end)

    def _bounds(self, at: int) -> dict[TopicPartition, int]:
        self._find_positions(self._assigned.states)  # waits for leaders, if needed
        return {where: one.offset for where, one in self._offsets(self._positions, at).items()}

    def _offsets(self, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, FoundOffset]:
        return self._admin.offsets(dict.fromkeys(partitions, at), isolation=self._isolation)

    def _with_leader(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions that have a leader.

        If none of them has a leader, wait until the first partition has a leader, and return only that partition. Raise
        KafkaError LEADER_NOT_AVAILABLE if the first partition gets no leader within the cluster's time limit.
        """
        found: list[TopicPartition] = []
        without: list[TopicPartition] = []
        for where in partitions:
            (found if self.cluster.leader_now(*where) >= 0 else without).append(where)
        if without and not found:
            self.cluster.leader_of(*without[0])
            return without[:1]
        if without and time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + BACKOFF_S
            for topic, _ in without:
                self.cluster.topics.pop(topic, None)
        return found

    def _find_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up and set the positions of those partitions whose position is not known yet."""
        states = self._assigned.states
        new = {
            where: state.reset_to
            for where in partitions
            if (state := states.get(where)) is not None and state.reset_to is not None
        }
        if new:
            for where, one in self._admin.offsets(new, isolation=self._isolation).items():
                self._positions[where] = one.offset

    def _wait_for_retry(self) -> None:
        """If every partition that is not paused waits for a retry, sleep until the first of these retries is due."""
        times = [state.not_before for state in self._assigned.states.values() if not state.paused]
        if times and (pause := min(times) - time.monotonic()) > 0:
            time.sleep(pause)


class _StrictFetcher(Fetcher):
    """A Fetcher that also raises connection errors and UNKNOWN_TOPIC_OR_PARTITION, which Fetcher only retries."""

    out_of_range_hint = ""

    def _try_later(self, partitions: Iterable[TopicPartition], error: ClientError | KafkaError) -> None:
        super()._try_later(partitions, error)
        if isinstance(error, ClientError) or error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
