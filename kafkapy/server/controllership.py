"""This broker's terms as the controller of its cluster: its election, its resignation, and what begins and ends with
them.

Source: KafkaController.elect, onControllerFailover, onControllerResignation.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.tree import BadVersion, Delete, NoNode, Tree, wait
from kafkapy.server.deleted_topics import forget_deleted

if TYPE_CHECKING:
    from kafkapy.controller.controller import ClusterController
    from kafkapy.controller.interface import Controller
    from kafkapy.metadata.cluster import ClusterRegistry
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.membership")


class Controllership:
    """Makes this broker the controller, and ends that. All methods block; one thread calls them at a time."""

    def __init__(self, services: Services, tree: Tree, cluster: ClusterRegistry, fence: ControllerFence) -> None:
        self._services = services
        self._tree = tree
        self._cluster = cluster
        self._fence = fence
        self._here: ClusterController | None = None
        self._elsewhere: Controller | None = None
        fence.set_term(None)

    def stand(self) -> bool:
        """Stand for election. Return True if this broker is the controller now, False if another broker is."""
        term = self._cluster.become_controller(self._services.broker_id, self._services.clock.time_ms())
        if term is not None:  # first the topics: threads that see that this broker is the controller may need them
            wait(self._tree.load_below, paths.FOR_CONTROLLER)
        self._fence.set_term(term)
        if term is not None:
            self._cluster.prepare_controller(self._fence)
        return term is not None

    def connect(self, here: ClusterController, elsewhere: Controller) -> None:
        """Set `services.controller` from now on: to `here` while this broker is the controller, otherwise to
        `elsewhere`."""
        self._here, self._elsewhere = here, elsewhere
        self._services.controller = elsewhere
        if self._fence.is_held:
            self.begin()

    def begin(self) -> None:
        """Begin the term to which this broker was elected: show its clients the cluster as it is in the metadata tree.
        The leaders of the partitions are sent later.

        With delete.topic.enable=false, topics that are marked for deletion are kept, as in Kafka (Source:
        TopicDeletionManager.init). A deletion that an earlier controller began is not continued.
        """
        assert self._here is not None
        services = self._services
        services.roles.accepts(self._fence.epoch)  # the former controller's requests change nothing from now on
        marked = [topic.name for topic in services.topics.marked()]
        if marked and not services.config["delete.topic.enable"]:
            log.warning("topics marked for deletion are kept, as delete.topic.enable is false: %s", ", ".join(marked))
            services.topics.unmark()
        for topic in services.topics.all():
            services.cache.expect(topic.name, topic.id, topic.assignment)
        forget_deleted(services, {topic.name for topic in services.topics.all()})
        # After the topics: clients that wait for brokers are answered with the topics, too.
        others = [broker for broker, _ in self._cluster.registered().values() if broker.id != services.broker_id]
        services.cache.set_brokers(services.broker_id, [*others, services.this])
        services.controller = self._here

    def end(self) -> None:
        """End this broker's term: another broker is the controller, or will be."""
        assert self._elsewhere is not None
        assert self._here is not None
        self._services.controller = self._elsewhere
        self._services.cache.forget_controller(self._services.broker_id)
        self._fence.set_term(None)
        self._here.end()
        self._services.topics.forget()
        self._tree.unload_below(paths.FOR_CONTROLLER)

    def resign(self) -> None:
        """Leave the control of the cluster to another broker. Raises TreeError if the metadata tree cannot be changed:
        then call this again."""
        if not self._fence.is_held:  # elected without knowing it, because ZooKeeper's response was lost
            self._fence.set_term(self._cluster.become_controller(self._services.broker_id, 0))
        # Only this broker's own node: another broker that was elected meanwhile has another controller epoch.
        with suppress(NoNode, BadVersion):
            self._tree.commit(self._fence.fenced([Delete(paths.CONTROLLER)]))
        self.end()
