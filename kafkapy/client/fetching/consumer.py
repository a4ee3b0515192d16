"""A consumer without a group: the caller assigns partitions, and the consumer keeps the positions."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from kafkapy.client.administration.descriptions import FoundOffset
from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.fetched import ConsumerRecord, Isolation, isolation_level, read_records
from kafkapy.client.fetching.engine import NAMES_UNTIL, Turns, Wanted, fetch_request, fetched_partitions
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH

__all__ = ["Consumer", "ConsumerRecord"]


class Consumer:
    """A blocking consumer for use in one thread. Partitions without a leader do not delay the others.

    Attributes:
        positions: The offset of the next record of each assigned partition. A partition that had no leader when it was
            assigned is added once it has one.
    Args:
        cluster: A Cluster, or bootstrap servers.
        max_wait_ms, min_bytes: How long a broker waits for at least `min_bytes` before it responds.
        max_bytes, partition_bytes: The largest size of a response, and of one partition's records in it.
        out_of_range: What to do at a position outside the partition's log: raise, or continue at the earliest or
            latest offset.
        isolation: With read_committed, records of open and aborted transactions are not returned.
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
    ) -> None:
        self._owns_cluster = not isinstance(cluster, Cluster)
        self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self.positions: dict[TopicPartition, int] = {}
        self._without_position: dict[
            TopicPartition, int
        ] = {}  # assigned partitions without a position -> where to start
        self._refresh_at = 0.0  # when to ask for the leaders of partitions that had none
        self._admin = Admin(self.cluster)
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._out_of_range = out_of_range
        self._isolation = isolation_level(isolation)
        self._turns = Turns()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owns_cluster:
            self.cluster.close()

    def assign(self, partitions: Iterable[TopicPartition], *, at: int = EARLIEST) -> None:
        """Assign these partitions in place of any others. Start each at its earliest record, or at LATEST."""
        self.positions = {}
        self._without_position = dict.fromkeys(partitions, at)
        self._find_positions(chain(*self._by_leader(list(self._without_position)).values()))

    def assign_topic(self, topic: str, *, at: int = EARLIEST) -> None:
        """Assign all partitions of one topic in place of any others."""
        self.assign([(topic, index) for index in self.cluster.topic(topic).partitions], at=at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue a partition at the first record with `offset` or a higher offset."""
        self._without_position.pop((topic, partition), None)
        self.positions[topic, partition] = offset

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Continue each assigned partition at its first record at or after `timestamp` (ms), or at its end."""
        ends = self.end_offsets()
        found = self._offsets(self.positions, timestamp)
        self.positions = {where: ends[where] if one.offset < 0 else one.offset for where, one in found.items()}

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the log start offset of each assigned partition."""
        return self._bounds(EARLIEST)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return each assigned partition's high watermark, or its last stable offset with read_committed."""
        return self._bounds(LATEST)

    def records(self, *, until: Mapping[TopicPartition, int] | None = None) -> Iterator[ConsumerRecord]:
        """Yield the records of all assigned partitions, in order within each partition.

        Args:
            until: The offset to stop at, by partition. None: the current end of each partition. To follow new records,
                call `poll` in a loop instead.
        """
        ends = dict(self.end_offsets() if until is None else until)
        while left := [
            where
            for where, end in ends.items()
            if where in self._without_position or self.positions.get(where, end) < end
        ]:
            for record in self.poll(partitions=left):
                if record.offset < ends[record.topic, record.partition]:
                    yield record

    def poll(self, *, partitions: Iterable[TopicPartition] | None = None) -> list[ConsumerRecord]:
        """Return the records of one fetch from each leader, perhaps none, and move the positions past them.

        Raises:
            KafkaError: A partition cannot be read, for example OFFSET_OUT_OF_RANGE. LEADER_NOT_AVAILABLE if none of the
                partitions has had a leader for the cluster's time limit.
            ConnectionFailed: A leader cannot be reached.
        """
        by_leader = self._by_leader(
            [*self.positions, *self._without_position] if partitions is None else list(partitions)
        )
        self._find_positions(chain(*by_leader.values()))
        found: list[ConsumerRecord] = []
        waiting = []
        try:
            for leader, its_partitions in by_leader.items():
                connection = self.cluster.connection(leader)
                connection.send(FETCH, self._request(its_partitions), at_most=NAMES_UNTIL)
                waiting.append(connection)
            while waiting:
                _, response = waiting[0].receive(self.cluster.timeout_s + self._max_wait_ms / 1000)
                waiting.pop(0)
                self._take(response, found)
        except BaseException:
            # A response that is left unread would be taken for the response to the next request.
            for connection in waiting:
                connection.close()
            raise
        return found

    def _bounds(self, at: int) -> dict[TopicPartition, int]:
        self._find_positions(self._without_position)  # waits for leaders, if needed
        return {where: one.offset for where, one in self._offsets(self.positions, at).items()}

    def _offsets(self, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, FoundOffset]:
        return self._admin.offsets(dict.fromkeys(partitions, at), isolation=self._isolation)

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions that have leaders, by leader. If none has a leader, wait for the first partition's."""
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        without = []
        for where in partitions:
            leader = self.cluster.leader_now(*where)
            if leader >= 0:
                leaders[leader].append(where)
            else:
                without.append(where)
        if without and not leaders:
            leaders[self.cluster.leader_of(*without[0])].append(without[0])
        elif without and time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + BACKOFF_S
            for topic, _ in without:
                self.cluster.topics.pop(topic, None)
        return leaders

    def _find_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the start positions of newly assigned partitions."""
        new = {where: self._without_position[where] for where in partitions if where in self._without_position}
        if new:
            for where, one in self._admin.offsets(new, isolation=self._isolation).items():
                self.seek(*where, one.offset)

    def _request(self, partitions: list[TopicPartition]) -> Any:
        """Return a Fetch request for the partitions."""
        wanted = [Wanted(where, self.positions[where], self._partition_bytes) for where in self._turns.next(partitions)]
        return fetch_request(
            wanted,
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation=self._isolation,
        )

    def _take(self, response: Any, found: list[ConsumerRecord]) -> None:
        """Append the response's records to `found` and move the positions."""
        for fetched in fetched_partitions(response):
            where = fetched.where
            if fetched.error_code:
                self._failed(where, fetched.error_code)
            elif fetched.data:
                records, self.positions[where] = read_records(
                    where, fetched.data, self.positions[where], fetched.aborted
                )
                found += records

    def _failed(self, where: TopicPartition, code: int) -> None:
        """Reset an out-of-range position, pause for a retriable error, or raise the error."""
        if code == Errors.OFFSET_OUT_OF_RANGE and self._out_of_range != "raise":
            at = EARLIEST if self._out_of_range == "earliest" else LATEST
            self.positions[where] = self._offsets([where], at)[where].offset
            return
        self.cluster.topics.pop(where[0], None)
        if not is_retriable(code) or code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            position = self.positions[where]
            raise KafkaError(code, f"{where[0]}-{where[1]} at offset {position}: {message_of(code)}")
        time.sleep(BACKOFF_S)  # the next poll asks for the new leader
