"""A controller in this process, and fake brokers of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkapy.controller.cluster import Registered
from kafkapy.controller.controller import ClusterController
from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.controller.requests import MetadataRequest, RolesRequest
from kafkapy.controller.topic_changes import Settings
from kafkapy.errors import KafkaError
from kafkapy.metadata.cache import LiveBroker, MetadataCache
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.producer_ids import ProducerIdBlocks
from kafkapy.metadata.topics import TopicRegistry

ME = 0


class Brokers:
    """Brokers 0, 1 and 2: the requests that the controller has sent to them, and their caches, filled from these."""

    def __init__(self) -> None:
        self.live = [0, 1, 2]
        self.sent: list[tuple[int, Any]] = []  # requests, with the brokers to which they were sent
        self.failures: dict[int, dict[tuple[str, int], KafkaError]] = {}  # errors in responses to new roles
        self.silent: set[int] = set()  # brokers that do not respond
        self.caches = {one: MetadataCache() for one in self.live}
        # The last leader epoch of each partition, by broker.
        self.roles: dict[int, dict[tuple[str, int], int]] = {one: {} for one in self.live}

    def registered(self) -> dict[int, Registered]:
        return {one: Registered(LiveBroker(one, {}), one + 1) for one in self.live}

    def send(self, broker: LiveBroker, requests: Sequence[tuple[Any, Any]]) -> None:
        for request, answered in requests:
            self.sent.append((broker.id, request))
            if broker.id in self.silent:
                continue
            failures: dict[tuple[str, int], KafkaError] = {}
            if isinstance(request, MetadataRequest):
                self.caches[broker.id].set_brokers(ME, request.brokers)
                self.caches[broker.id].update(request.partitions)
            elif isinstance(request, RolesRequest):
                named = {(one.topic, one.partition): one.leader_epoch for one in request.roles}
                failing = self.failures.get(broker.id, {})
                failures = {key: failing[key] for key in named if key in failing}
                self.roles[broker.id].update((key, epoch) for key, epoch in named.items() if key not in failures)
            answered(failures)

    def forget(self, broker_ids: Any) -> None:
        pass

    def wait_for_others(self, timeout_s: float) -> bool:
        return True


class Lab:
    """Broker 0 as the controller of three brokers."""

    def __init__(self, directory: Path):
        self.tree = LocalTree(directory / FILE_NAME)
        self.registry = ClusterRegistry(self.tree)
        self.fence = fence = ControllerFence(self.tree)
        fence.set_term(self.registry.become_controller(ME, 0))
        self.topics = TopicRegistry(self.tree, lambda name, error: None, fence)
        self.brokers = Brokers()
        self.controller = ClusterController(
            fence,
            self.topics,
            ProducerIdBlocks(self.tree),
            self.brokers,
            broker_id=ME,
            registered=self.brokers.registered,
            wait_for_own=lambda: None,
            first_epoch=lambda topic, index: 0,
            later=lambda delay_s, work: None,
            settings=Settings(lambda overrides: None, lambda topic: None, lambda: 1, lambda: 1, lambda topic: False),
        )
        self.controller.start(self.topics.all(), lambda: False)
        self._changes: OutsideChanges | None = None

    def follow_outside_changes(self) -> None:
        """Have the controller carry out what other programs write to the tree, until `close`."""
        self._changes = OutsideChanges(
            self.tree,
            self.fence,
            self.topics,
            self.controller,
            is_controller=lambda: True,
            may_delete=lambda: True,
            on_topic_settings=lambda name: None,
            on_broker_settings=lambda: None,
        )
        self._changes.start()

    def brokers_are(self, *live: int) -> None:
        self.brokers.live = list(live)
        self.controller.brokers_changed()
        self.finish()

    def finish(self) -> None:
        """Let the controller handle the events so far, and those that they cause."""
        while self.controller.queue_size:
            self.controller._events.run(lambda: None)
        self.controller._events.run(lambda: None)

    def close(self) -> None:
        if self._changes is not None:
            self._changes.stop()
        self.controller.stop()
        self.tree.close()
