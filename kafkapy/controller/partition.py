"""A partition as the controller knows it."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.metadata.topic_nodes import PartitionState, Topic

TopicPartition = tuple[str, int]


class Partition(NamedTuple):
    """A partition with a state, which is the stored one or one to be written.

    `version` is the version of the state's node, which is the partition epoch.
    """

    topic: Topic
    number: int
    state: PartitionState
    version: int

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.number

    @property
    def replicas(self) -> list[int]:
        return self.topic.assignment[self.number]

    def in_state(self, state: PartitionState) -> Partition:
        """Return the partition in a new state, which replaces the stored state if that has this version."""
        return self._replace(state=state)

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.number}"
