"""The additional parts of a broker with its metadata in ZooKeeper: its registration in the cluster, its terms as the
controller, and changes by other programs.

Only created if zookeeper.connect is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from kafkapy.controller.controller import ClusterController
from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.roles import TOPIC_DELETED, StopPartition
from kafkapy.metadata.topics import Topic
from kafkapy.metadata.tree import Tree
from kafkapy.server.controllership import Controllership
from kafkapy.server.leaving import DirectoryFailures
from kafkapy.server.membership import Membership
from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.membership")


class SharedCluster:
    """The parts that only a broker with its metadata in ZooKeeper has: its registration, and the reaction to changes by
    other programs.

    Call `check_start`, then `complete_topics`, `start`, and `stop` at the end.
    """

    def __init__(
        self,
        services: Services,
        tree: Tree,
        cluster: ClusterRegistry,
        fence: ControllerFence,
        controllership: Controllership,
        on_failure: Callable[[str], None],
    ) -> None:
        self._services = services
        self._tree = tree
        self._fence = fence
        self._controllership = controllership
        self._on_failure = on_failure
        self._changes: OutsideChanges | None = None
        self._directory_failures = DirectoryFailures(tree, services.broker_id, services.timer.schedule)
        self._controller: ClusterController | None = None
        self._membership = Membership(tree, cluster, services.broker_id, services.config["zookeeper.connect"])

    def check_start(self, endpoints: Sequence[Endpoint], own_ports: Collection[int]) -> bool:
        """Wait until no earlier session of this broker is registered in ZooKeeper. Return True if no other broker is
        registered, so that this broker can be the controller.

        Raise StartError as Membership.check_start does.
        """
        timeout_s = self._services.config["zookeeper.session.timeout.ms"] / 1000
        self._membership.check_start(timeout_s, endpoints, own_ports)
        return not self._membership.other_brokers()

    def taken(self) -> str:
        """Return the message for a broker id that another broker has registered during the start."""
        return self._membership.taken("an address of its own")

    def unreadable(self, name: str, error: ValueError) -> None:
        """Log that a topic is not served because its node in ZooKeeper cannot be read."""
        log.error("topic %s is not served: %s", name, error)

    def complete_topics(self, controller: ClusterController) -> None:
        """Complete topics that other programs have created or enlarged in ZooKeeper while no broker ran, if this broker
        is the controller. Call this before the logs are loaded."""
        services = self._services
        self._controller = controller
        self._changes = OutsideChanges(
            self._tree,
            self._fence,
            services.topics,
            controller,
            is_controller=lambda: services.is_controller,
            may_delete=lambda: services.config["delete.topic.enable"],
            on_topic_settings=services.topic_settings.reload,
            on_broker_settings=services.dynamic_config.reload,
        )
        if services.is_controller:
            self._changes.complete_topics()

    def start(self, register: Callable[[], None]) -> None:
        """Start following changes that other programs make in ZooKeeper, and keep this broker registered with
        `register`, see Membership.follow."""
        assert self._changes is not None
        self._membership.follow(register, self, self._on_failure)
        self._changes.start()
        self._services.producer_ids.prefetch()  # so that the first producers need no access to ZooKeeper

    def directory_failed(self) -> None:
        """Notify the controller that a log directory of this broker has failed. Returns at once."""
        self._directory_failures.report()

    # The election, on the thread of the membership.

    def stand(self) -> None:
        """Stand for election. If this broker is elected, take over all topics.

        Everything in ZooKeeper is compared again: no watch reports changes made without a session, and this broker has
        not followed the topics while another broker was the controller.
        """
        self.end()  # the term of this broker, if an operator has deleted the controller's node
        if not self._controllership.stand():
            return
        try:
            self._take_over()
        except Exception:
            if self._fence.is_held:  # another broker may succeed
                self._controllership.resign()
            raise

    def _take_over(self) -> None:
        assert self._changes is not None
        assert self._controller is not None
        services = self._services
        deleted = services.topics.marked()
        services.topics.reload()
        for topic in deleted:
            if services.topics.by_id(topic.id) is None and topic not in services.topics.marked():
                self._drop_logs(topic)  # another controller has finished the deletion
        self._controllership.begin()
        self._changes.complete_topics()
        if self._controller.start(services.topics.all(), self._must_stop):
            services.cache.complete()
        self._changes.look_again()

    def _drop_logs(self, topic: Topic) -> None:
        logs = [self._services.log_manager.get(topic.name, index) for index in topic.assignment]
        stops = [
            StopPartition(topic.name, one.partition, TOPIC_DELETED, delete=True)
            for one in logs
            if one is not None and one.topic_id == topic.id  # not a log of a new topic of this name
        ]
        self._services.roles.apply(self._services.topics.controller_epoch, stops)

    def _must_stop(self) -> bool:
        return self._services.stopping or not self._fence.is_held

    def end(self) -> None:
        if self._fence.is_held:
            self._controllership.end()

    def stop(self) -> None:
        """Stop following changes in ZooKeeper, and stop keeping this broker registered."""
        self._directory_failures.stop()
        self._membership.stop()
        if self._changes is not None:
            self._changes.stop()
