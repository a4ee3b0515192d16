"""The interface through which a broker calls its cluster's controller.

The controller is in the same process (`kafkapy.controller.controller`), or another broker is the controller
(`kafkapy.server.controller_elsewhere`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy.controller.partition import Partition, TopicPartition
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topic_rules import Assignment
from kafkapy.metadata.topics import Topic

if TYPE_CHECKING:
    from kafkapy.controller.isr_changes import IsrRequest


def not_controller() -> KafkaError:
    """Return the error of a request that only the controller answers."""
    return KafkaError(Errors.NOT_CONTROLLER, "this broker is not the controller")


class Controller:
    """The methods of the controller that a broker calls. The implementations here are those of a broker that is not the
    controller: requests fail with NOT_CONTROLLER, notifications do nothing.

    All methods may raise KafkaError. They may wait, so they must not be called on network threads, except
    `check_active` and `allocate_producer_ids`, which do not wait.
    """

    def check_active(self) -> None:
        """Raise KafkaError NOT_CONTROLLER unless this broker is the controller."""
        raise not_controller()

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
        raise not_controller()

    def create_on_demand(
        self, name: str, *, partitions: int = -1, replication: int = -1, overrides: Mapping[str, str] | None = None
    ) -> object:
        """Create a topic that clients need, which every broker may do. Raises KafkaError TOPIC_ALREADY_EXISTS if there
        is such a topic.

        When this returns, the partitions have leaders only if this broker is the controller. Otherwise the metadata
        cache shows the topic when the controller has elected its leaders.
        """
        return self.create(name, partitions=partitions, replication=replication, overrides=overrides)

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that a Metadata request names; return the errors of those that could not be created, or
        have no leaders yet, by name.
        """
        raise not_controller()

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """Add partitions to a topic until it has `count`. With `validate_only`, only check the request.

        `by_hand` has the replicas of each new partition; None lets the controller choose.
        """
        raise not_controller()

    def delete(self, name: str) -> None:
        """Delete a topic. When this returns, clients do not see the topic any more."""
        raise not_controller()

    def finish_marked(self, name: str) -> None:
        """Finish the deletion of a topic that is marked as deleted. Does nothing for any other topic.

        A deletion is unfinished if it was interrupted, or if a log of the topic was being recovered and could not be
        deleted. A broker calls this after the recovery of such a log.
        """

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        """Move partition `index` of a topic to the replicas `target` (broker ids); None cancels the reassignment in
        progress.
        """
        raise not_controller()

    def elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        """Hold elections of a kind (0 preferred, 1 unclean). Return an error for each partition, None where a leader
        was elected. `partitions` None means all partitions; the result then has only those that need an election.
        """
        raise not_controller()

    def alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[IsrRequest]
    ) -> dict[TopicPartition, Partition | KafkaError]:
        """Change ISRs as the leader `broker_id` asks. Return each partition in its new state, or an error.

        Raises KafkaError STALE_BROKER_EPOCH if the broker is not registered with this epoch.
        """
        raise not_controller()

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker that wants to stop. Return the partitions that it still leads.

        Raises KafkaError STALE_BROKER_EPOCH, or BROKER_NOT_AVAILABLE for a broker that is not registered.
        """
        raise not_controller()

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Raise KafkaError BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH unless the broker is registered with this
        broker epoch.
        """
        raise not_controller()

    def settings_changed(self, name: str) -> None:
        """Elect a leader for each partition of a topic without one: its settings may allow unclean elections now."""

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        """Allocate a block of producer ids for a broker, and call `done` with the block or the error, on any thread."""
        raise not_controller()
