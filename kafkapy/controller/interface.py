"""The interface through which a broker calls its cluster's controller.

The controller is in the same process, or another broker is the controller: see `kafkapy.controller.elsewhere`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkapy.errors import KafkaError
from kafkapy.metadata.topics import Topic

if TYPE_CHECKING:
    from kafkapy.controller.isr_changes import IsrRequest, Outcome

TopicPartition = tuple[str, int]
Assignment = Mapping[int, Sequence[int]]


class Controller(Protocol):
    """The methods of the controller that a broker calls.

    All methods raise KafkaError, with NOT_CONTROLLER if another broker is the controller. They may wait, so they must
    not be called on network threads, except `check_active` and `allocate_producer_ids`, which do not wait.
    """

    def check_active(self) -> None:
        """Raise KafkaError NOT_CONTROLLER unless this broker is the controller."""
        ...

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
        """Create a topic, and return it when its partitions have leaders. With `validate_only`, only check the request.

        `partitions` and `replication` are counts; -1 means the broker's default. `by_hand` maps each partition to its
        replicas instead. `overrides` are settings of the topic.
        """
        ...

    def create_on_demand(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        overrides: Mapping[str, str] | None = None,
    ) -> object:
        """Create a topic that clients need, which every broker may do. Raises KafkaError TOPIC_ALREADY_EXISTS if there
        is such a topic.

        When this returns, the partitions have leaders only if this broker is the controller. Otherwise the metadata
        cache shows the topic when the controller has elected its leaders.
        """
        ...

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that a Metadata request names; return the errors of those that could not be created, or
        have no leaders yet, by name.
        """
        ...

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """Add partitions to a topic until it has `count`. With `validate_only`, only check the request.

        `by_hand` has the replicas of each new partition; None lets the controller choose.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a topic. When this returns, clients do not see the topic any more."""
        ...

    def finish_marked(self, name: str) -> None:
        """Finish the deletion of a topic that is marked as deleted. Does nothing for any other topic.

        A deletion is unfinished if it was interrupted, or if a log of the topic was being recovered and could not be
        deleted. A broker calls this after the recovery of such a log.
        """
        ...

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        """Move partition `index` of a topic to the replicas `target` (broker ids); None cancels the reassignment in
        progress.
        """
        ...

    def elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        """Hold elections of a kind (0 preferred, 1 unclean). Return an error for each partition, None where a leader
        was elected. `partitions` None means all, of which those that need no election are left out.
        """
        ...

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[IsrRequest]
    ) -> dict[TopicPartition, Outcome]:
        """Change ISRs as the leader `broker_id` asks. Return the new state with its version, or an error, for each."""
        ...

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker that wants to stop. Return the partitions that it still leads."""
        ...

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Raise KafkaError unless the broker is registered with this broker epoch."""
        ...

    def settings_changed(self, name: str) -> None:
        """Elect leaders that the changed settings of a topic allow."""
        ...

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        """Allocate a block of producer ids for a broker, and call `done` with the block or the error, on any thread."""
        ...
