"""The interface between a broker and its cluster's controller.

The controller is in the same process now. In a cluster of several brokers the calls are requests to another broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kafkapy.errors import KafkaError
from kafkapy.metadata.topics import Topic

Assignment = Mapping[int, Sequence[int]]


class Controller(Protocol):
    """The controller as a broker sees it.

    All methods raise KafkaError, with NOT_CONTROLLER if another broker is the controller. They may wait, so they must
    not be called on network threads, except `elect_leader` and `allocate_producer_ids`, which do not wait.
    """

    def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        by_hand: Assignment | None = None,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic and return when its partitions have leaders. -1 means the broker's default."""
        ...

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics of a Metadata request; return the errors of those that could not be created."""
        ...

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """Extend a topic to `count` partitions."""
        ...

    def delete(self, name: str) -> None:
        """Delete a topic. When this returns, clients do not see the topic any more."""
        ...

    def finish_marked(self, name: str) -> None:
        """Finish the deletion of a topic that is marked as deleted. Do nothing for any other topic.

        A deletion is unfinished if it was interrupted, or if a log of the topic was being recovered and could not be
        deleted. A broker calls this after the recovery of such a log.
        """
        ...

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        """Move a partition to the replicas `target`; None cancels the move that is in progress."""
        ...

    def elect_leader(self, name: str, index: int) -> None:
        """Elect the preferred replica as leader. Raise ELECTION_NOT_NEEDED if that replica is the leader already."""
        ...

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        """Allocate a block of producer ids for a broker. Call `done` with the block or the error, on any thread."""
        ...
