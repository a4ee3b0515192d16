"""The partition assignment of the original consumer, as pure functions of a group's znodes.

Every member computes the assignment of all members from the same znodes, so no coordinator is needed. A partition is a
tuple (topic, partition name in ZooKeeper). A consumer thread is written CONSUMER-NUMBER.
Source: RangeAssignor and RoundRobinAssignor of Kafka 0.8.2 and 0.10.2, ZookeeperConsumerConnector of 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from kafkapy.client.groups.assignors.java_order import string_hash

Partition = tuple[str, str]


class Thread(NamedTuple):
    """A consumer's thread, which reads one stream: the consumer id and the thread's number in that consumer."""

    consumer: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer}-{self.number}"

    @property
    def order(self) -> bytes:
        """The sort key of the thread's text.

        Like Java, it compares UTF-16 code units, so thread 10 sorts before thread 2.
        """
        return str(self).encode("utf-16-be", "surrogatepass")


# The number of streams by topic, for each consumer; and the partitions of each topic, in order.
Streams = Mapping[str, Mapping[str, int]]
Partitions = Mapping[str, Sequence[str]]
Assignment = dict[Partition, Thread]


def threads_by_topic(streams: Streams) -> dict[str, list[Thread]]:
    """Return the consumer threads that read each topic, sorted like Java sorts their texts."""
    found: dict[str, list[Thread]] = {}
    for consumer, its_streams in streams.items():
        for topic, count in its_streams.items():
            found.setdefault(topic, []).extend(Thread(consumer, number) for number in range(count))
    for threads in found.values():
        threads.sort(key=lambda thread: thread.order)
    return found


def range_assignment(streams: Streams, partitions: Partitions) -> Assignment:
    """Assign consecutive partitions of each topic to each thread. Return the thread by partition.

    If the partitions do not divide evenly, the first threads get one partition more than the others.
    """
    found: Assignment = {}
    for topic, threads in threads_by_topic(streams).items():
        names = partitions.get(topic, ())
        each, more = divmod(len(names), len(threads))
        start = 0
        for position, thread in enumerate(threads):
            end = start + each + (position < more)
            found.update(((topic, name), thread) for name in names[start:end])
            start = end
    return found


def round_robin_assignment(streams: Streams, partitions: Partitions) -> Assignment:
    """Assign the partitions of all topics in turn to the threads that read them. Return the thread by partition.

    Members of Kafka 0.8.2 refuse to rebalance if the group's subscriptions differ. Members of 0.10 compute this
    assignment even then.
    """
    by_topic = threads_by_topic(streams)
    wanted = {topic: set(threads) for topic, threads in by_topic.items()}
    turns = cycle(sorted(set().union(*wanted.values()), key=lambda thread: thread.order))
    found: Assignment = {}
    named = ((topic, name) for topic in wanted for name in partitions.get(topic, ()))
    for partition in sorted(named, key=lambda one: (_java_order(*one), one)):
        found[partition] = next(thread for thread in turns if thread in wanted[partition[0]])
    return found


STRATEGIES: dict[str, Callable[[Streams, Partitions], Assignment]] = {
    "range": range_assignment,
    "roundrobin": round_robin_assignment,
}


def _java_order(topic: str, name: str) -> int:
    """Return Java's TopicAndPartition.hashCode, a signed 32-bit int, by which round robin sorts partitions."""
    code = string_hash(f"[{topic},{name}]")
    return code - (1 << 32) if code >> 31 else code
