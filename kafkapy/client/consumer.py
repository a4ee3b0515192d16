"""A consumer without a group: partitions are assigned by the caller, positions are kept here."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from kafkapy.client.admin import EARLIEST, LATEST, Admin
from kafkapy.client.cluster import BACKOFF_S, Cluster, TopicPartition
from kafkapy.client.descriptions import FoundOffset
from kafkapy.client.fetched import NAMES_UNTIL, ConsumerRecord, Isolation, isolation_level, read_records
from kafkapy.errors import Errors, KafkaError, is_retriable, message_of
from kafkapy.protocol.apis import FETCH

__all__ = ["Consumer", "ConsumerRecord"]


class Consumer:
    """Blocking, for one thread.

    Args:
        cluster: a Cluster, or bootstrap servers.
        max_wait_ms, min_bytes: how long a broker waits for how much before it answers with less.
        max_bytes, partition_bytes: how much one answer, and one partition in it, may have.
        out_of_range: what to do at a position that the partition no longer has, or does not have yet: raise, or go
            on at the earliest or latest record.
        isolation: read_committed gives records of transactions when they are committed, and none of aborted ones.
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
        self._admin = Admin(self.cluster)
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._out_of_range = out_of_range
        self._isolation = isolation_level(isolation)
        self._first = 0

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owns_cluster:
            self.cluster.close()

    def assign(self, partitions: Iterable[TopicPartition], *, at: int = EARLIEST) -> None:
        """Reads these partitions from now on, and no others, each from its earliest record or LATEST on."""
        found = self._offsets(partitions, at)
        self.positions = {where: one.offset for where, one in found.items()}

    def assign_topic(self, topic: str, *, at: int = EARLIEST) -> None:
        """All partitions of one topic."""
        self.assign([(topic, index) for index in self.cluster.topic(topic).partitions], at=at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record read from this partition is the one at `offset`, or the first one after it."""
        self.positions[topic, partition] = offset

    def seek_to_timestamp(self, timestamp: int) -> None:
        """Each assigned partition goes on at its first record at or after `timestamp` (ms), or at its end."""
        found = self._offsets(self.positions, timestamp)
        ends = self.end_offsets()
        self.positions = {where: ends[where] if one.offset < 0 else one.offset for where, one in found.items()}

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        return {where: one.offset for where, one in self._offsets(self.positions, EARLIEST).items()}

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The offset behind the last record of each assigned partition that this consumer may see."""
        return {where: one.offset for where, one in self._offsets(self.positions, LATEST).items()}

    def records(self, *, until: Mapping[TopicPartition, int] | None = None) -> Iterator[ConsumerRecord]:
        """Records of all assigned partitions, in order within each.

        Args:
            until: per partition the offset at which to stop; None: where each partition ends now. For records that
                are still to come, call `poll` again and again.
        """
        ends = dict(self.end_offsets() if until is None else until)
        while left := [where for where, end in ends.items() if self.positions.get(where, end) < end]:
            for record in self.poll(partitions=left):
                if record.offset < ends[record.topic, record.partition]:
                    yield record

    def poll(self, *, partitions: Iterable[TopicPartition] | None = None) -> list[ConsumerRecord]:
        """What one fetch from every leader brings, perhaps nothing; moves the positions behind it.

        Raises:
            KafkaError: of a partition that cannot be read, OFFSET_OUT_OF_RANGE among others.
            ConnectionFailed: a leader cannot be reached.
        """
        asked = list(self.positions if partitions is None else partitions)
        found: list[ConsumerRecord] = []
        waiting = []
        try:
            for leader, its_partitions in self._by_leader(asked).items():
                connection = self.cluster.connection(leader)
                connection.send(FETCH, self._request(its_partitions), at_most=NAMES_UNTIL)
                waiting.append(connection)
            while waiting:
                _, response = waiting[0].receive(self.cluster.timeout_s + self._max_wait_ms / 1000)
                waiting.pop(0)
                self._take(response, found)
        except BaseException:
            # An answer nobody waits for would be taken for that of the next request.
            for connection in waiting:
                connection.close()
            raise
        return found

    def _offsets(self, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, FoundOffset]:
        return self._admin.offsets(dict.fromkeys(partitions, at), isolation=self._isolation)

    def _by_leader(self, partitions: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for topic, index in partitions:
            leaders[self.cluster.leader_of(topic, index)].append((topic, index))
        return leaders

    def _request(self, partitions: list[TopicPartition]) -> Any:
        # Brokers fill an answer in the order asked: another partition comes first each time, so that none starves.
        self._first = (self._first + 1) % len(partitions)
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for topic, index in partitions[self._first :] + partitions[: self._first]:
            topics[topic].append(
                FETCH.Request.Topics.Partitions(
                    partition=index,
                    fetch_offset=self.positions[topic, index],
                    partition_max_bytes=self._partition_bytes,
                )
            )
        return FETCH.Request(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=[FETCH.Request.Topics(topic=name, partitions=asked) for name, asked in topics.items()],
        )

    def _take(self, response: Any, found: list[ConsumerRecord]) -> None:
        if response.error_code:
            raise KafkaError(response.error_code)
        for topic in response.responses:
            for answer in topic.partitions:
                where = topic.topic, answer.partition_index
                if answer.error_code:
                    self._failed(where, answer.error_code)
                elif answer.records:
                    records, self.positions[where] = read_records(
                        where, memoryview(answer.records), self.positions[where], answer.aborted_transactions or ()
                    )
                    found += records

    def _failed(self, where: TopicPartition, code: int) -> None:
        if code == Errors.OFFSET_OUT_OF_RANGE and self._out_of_range != "raise":
            at = EARLIEST if self._out_of_range == "earliest" else LATEST
            self.positions[where] = self._offsets([where], at)[where].offset
            return
        self.cluster.topics.pop(where[0], None)
        if not is_retriable(code) or code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
            position = self.positions[where]
            raise KafkaError(code, f"{where[0]}-{where[1]} at offset {position}: {message_of(code)}")
        time.sleep(BACKOFF_S)  # a new leader is being found: the next poll asks for it
