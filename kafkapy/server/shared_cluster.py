"""What a broker does more whose metadata is in ZooKeeper, where others see it and change it: its place in the
cluster, and what others write. Made by the composition root only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.office import Office
from kafkapy.metadata.tree import Tree
from kafkapy.server.membership import Membership
from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.membership")


class SharedCluster:
    """Life: construct, `wait_for_place`, `settle` (once there is a controller), `start`, `stop`."""

    def __init__(
        self,
        services: Services,
        tree: Tree,
        cluster: ClusterRegistry,
        office: Office,
        on_failure: Callable[[str], None],
    ) -> None:
        self._services = services
        self._tree = tree
        self._office = office
        self._on_failure = on_failure
        self._changes: OutsideChanges | None = None
        self._membership = Membership(tree, cluster, services.broker_id, services.config["zookeeper.connect"])

    def wait_for_place(self, own_ports: Collection[int]) -> None:
        """Until this broker can be the only one. Raises StartError."""
        self._membership.wait_for_place(self._services.config["zookeeper.session.timeout.ms"] / 1000, own_ports)

    def unreadable(self, name: str, error: ValueError) -> None:
        log.error("topic %s is not served: %s", name, error)

    def settle(self) -> None:
        """Before logs are read: topics that others made meanwhile get what they lack."""
        services = self._services
        self._changes = OutsideChanges(
            self._tree,
            self._office,
            services.topics,
            services.controller,
            may_delete=lambda: services.config["delete.topic.enable"],
            on_broker_settings=services.dynamic_config.reload,
        )
        self._changes.settle()

    def start(self, register: Callable[[], None], elect: Callable[[], None]) -> None:
        """Follows the others; see Membership.follow. After each new session everything is looked at again."""
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
        self._services.producer_ids.prefetch()  # so that the first producers do not depend on ZooKeeper

    def stop(self) -> None:
        self._membership.stop()
        if self._changes is not None:
            self._changes.stop()
