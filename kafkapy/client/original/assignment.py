"""Who reads what: the rebalance of the original consumer, as functions of what all members of a group can see.

Every member computes it for all, from the same znodes, and so needs no coordinator. A partition is (topic, name of the
partition as the layout has it); a consumer thread is CONSUMER-NUMBER.
Source: RangeAssignor and RoundRobinAssignor of Kafka 0.8.2 and 0.10.2, ZookeeperConsumerConnector of 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from kafkapy.client.assignors.java_order import string_hash

Partition = tuple[str, str]


class Thread(NamedTuple):
    consumer: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer}-{self.number}"

    @property
    def order(self) -> bytes:
        """Threads sort as texts, -10 before -2, and texts as Java sorts them, by their UTF-16."""
        return str(self).encode("utf-16-be", "surrogatepass")


# Streams by topic, of each consumer; and the partitions of each topic in their order.
Streams = Mapping[str, Mapping[str, int]]
Partitions = Mapping[str, Sequence[str]]
Assignment = dict[Partition, Thread]


def threads_by_topic(streams: Streams) -> dict[str, list[Thread]]:
    """In their order."""
    found: dict[str, list[Thread]] = {}
    for consumer, its_streams in streams.items():
        for topic, count in its_streams.items():
            found.setdefault(topic, []).extend(Thread(consumer, number) for number in range(count))
    for threads in found.values():
        threads.sort(key=lambda thread: thread.order)
    return found


def range_assignment(streams: Streams, partitions: Partitions) -> Assignment:
    """Topic by topic: each thread gets equally many neighbours, the first ones one more where it does not divide."""
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
    """All partitions of all topics in turn to all threads; a thread that does not want a topic is passed over.

    Members of Kafka 0.8.2 refuse to go on where subscriptions differ; those of 0.10 agree with this in all cases.
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
    """TopicAndPartition.toString.hashCode, a signed int: so that the partitions of a topic are not neighbours."""
    code = string_hash(f"[{topic},{name}]")
    return code - (1 << 32) if code >> 31 else code
