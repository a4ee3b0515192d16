"""The additional parts of a broker with its metadata in ZooKeeper: its registration, and changes by other programs.

Only created if zookeeper.connect is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.controller.topic_changes import TopicController
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.tree import Tree
from kafkapy.server.leaving import DirectoryFailures
from kafkapy.server.membership import Membership
from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.membership")


class SharedCluster:
    """The parts that only a broker with its metadata in ZooKeeper has: its registration, and the reaction to changes by
    other programs.

    Call `wait_for_other_brokers`, then `complete_topics` (when there is a controller), `start`, and `stop` at the end.
    """

    def __init__(
        self,
        services: Services,
        tree: Tree,
        cluster: ClusterRegistry,
        fence: ControllerFence,
        on_failure: Callable[[str], None],
    ) -> None:
        self._services = services
        self._tree = tree
        self._fence = fence
        self._on_failure = on_failure
        self._changes: OutsideChanges | None = None
        self._directory_failures = DirectoryFailures(tree, services.broker_id)
        self._membership = Membership(tree, cluster, services.broker_id, services.config["zookeeper.connect"])

    def wait_for_other_brokers(self, own_ports: Collection[int]) -> None:
        """Wait until no other broker is registered in ZooKeeper. Raise StartError as Membership.wait_for_other_brokers
        does."""
        self._membership.wait_for_other_brokers(self._services.config["zookeeper.session.timeout.ms"] / 1000, own_ports)

    def unreadable(self, name: str, error: ValueError) -> None:
        """Log that a topic is not served because its node in ZooKeeper cannot be read."""
        log.error("topic %s is not served: %s", name, error)

    def complete_topics(self, controller: TopicController) -> None:
        """Complete topics that other programs have created or enlarged in ZooKeeper while no broker ran. Call this
        before the logs are loaded."""
        services = self._services
        self._changes = OutsideChanges(
            self._tree,
            self._fence,
            services.topics,
            controller,
            may_delete=lambda: services.config["delete.topic.enable"],
            on_topic_settings=services.topic_settings.reload,
            on_broker_settings=services.dynamic_config.reload,
        )
        self._changes.complete_topics()

    def start(self, register: Callable[[], None], elect: Callable[[], None]) -> None:
        """Start following changes that other programs make in ZooKeeper, and keep this broker registered with
        `register` and `elect`, see Membership.follow.

        After each election everything in ZooKeeper is compared again: no watch reports changes made without a session.
        """
        changes = self._changes
        assert changes is not None

        def elect_again() -> None:
            elect()
            changes.look_again()

        def again() -> None:
            register()
            elect_again()

        self._membership.follow(again, elect_again, self._on_failure)
        changes.start()
        self._services.producer_ids.prefetch()  # so that the first producers need no access to ZooKeeper

    def directory_failed(self) -> None:
        """Tell the controller that a log directory of this broker has failed. Returns at once."""
        self._directory_failures.tell()

    def stop(self) -> None:
        """Stop following changes in ZooKeeper, and stop keeping this broker registered."""
        self._directory_failures.stop()
        self._membership.stop()
        if self._changes is not None:
            self._changes.stop()
