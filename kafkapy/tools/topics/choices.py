"""The options of `kafkapy topics describe` that show only partitions with a problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkapy.tools.topics.interface import Document, TopicBackend


class Choice(NamedTuple):
    """An option of `describe` that chooses partitions.

    `none` is what is printed if there are no such partitions. `is_chosen` has a partition's document, the number of its
    topic's min.insync.replicas (0 if `needs_min_isr` is False), and the ids of the brokers that run.
    """

    option: str
    none: str
    is_chosen: Callable[[Document, int, frozenset[int]], bool]
    needs_min_isr: bool = False

    def only(self, topics: list[Document], backend: TopicBackend) -> list[Document]:
        """Return the topics that have chosen partitions, with only these partitions."""
        live = backend.live_brokers()
        found = []
        for topic in topics:
            least = backend.min_isr(topic["name"]) if self.needs_min_isr else 0
            partitions = [one for one in topic["partitions"] if self.is_chosen(one, least, live)]
            if partitions:
                found.append({**topic, "partitions": partitions})
        return found


def _is_under_replicated(partition: Document, least: int, live: frozenset[int]) -> bool:
    return not set(partition["replicas"]) <= set(partition["isr"])


def _is_under_min_isr(partition: Document, least: int, live: frozenset[int]) -> bool:
    """Return True if the partition has no leader, or fewer replicas in sync than it needs. As in Kafka 3.9 a partition
    with fewer replicas than min.insync.replicas needs all of them."""
    return partition["leader"] is None or len(partition["isr"]) < min(least, len(partition["replicas"]))


def _is_unavailable(partition: Document, least: int, live: frozenset[int]) -> bool:
    return partition["leader"] not in live


UNDER_REPLICATED = Choice("--under-replicated-partitions", "All replicas are in sync.", _is_under_replicated)
UNDER_MIN_ISR = Choice(
    "--under-min-isr-partitions", "All partitions have enough replicas in sync.", _is_under_min_isr, needs_min_isr=True
)
UNAVAILABLE = Choice("--unavailable-partitions", "All partitions have a leader.", _is_unavailable)
