"""What a broker does for its clients while another broker is the controller, or while there is no controller.

Source: Kafka's DefaultAutoTopicCreationManager, ZkAdminManager, AdminZkClient and RPCProducerIdManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from kafkapy.controller.interface import Controller
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.configs import encode_settings
from kafkapy.metadata.ids import new_id
from kafkapy.metadata.topic_nodes import Topic, encode_topic
from kafkapy.metadata.topic_rules import check_collision, spread_over_racks, validate_name
from kafkapy.metadata.tree import Create, NodeExists, NoNode, Operation, Set, Tree, TreeError, wait

log = logging.getLogger("kafkapy.controller.topics")

Allocate = Callable[[Callable[["range | Exception"], object]], object]


class ControllerElsewhere(Controller):
    """The Controller of a broker that is not the controller: operations that only the controller may do fail with
    NOT_CONTROLLER.
    """

    def __init__(
        self,
        tree: Tree,
        cache: MetadataCache,
        *,
        check_settings: Callable[[Mapping[str, str]], object],
        default_partitions: Callable[[], int],
        default_replication: Callable[[], int],
        allocate_producer_ids: Allocate,
    ) -> None:
        """`allocate_producer_ids(done)` asks the controller for a block of producer ids for this broker."""
        self._tree = tree
        self._cache = cache
        self._check_settings = check_settings
        self._default_partitions = default_partitions
        self._default_replication = default_replication
        self._allocate_producer_ids = allocate_producer_ids

    def create_on_demand(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        overrides = dict(overrides or {})
        self._check_new(name)
        assignment = spread_over_racks(
            {broker.id: broker.rack for broker in self._cache.live_brokers()},
            self._default_partitions() if partitions < 0 else partitions,
            self._default_replication() if replication < 0 else replication,
        )
        self._check_settings(overrides)
        self._write(Topic(name, new_id(), assignment), overrides)
        settings = overrides or "defaults"
        count = len(assignment)
        log.info("topic %s written for the controller, with partitions: %d, settings: %s", name, count, settings)

    def _check_new(self, name: str) -> None:
        validate_name(name)
        # The tree has no topics in memory on a broker that is not the controller.
        present, mark = wait(self._tree.read_through, [paths.topic(name), paths.deletion_mark(name)])
        if mark is not None:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
        if present is not None or name in self._cache:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if "." in name or "_" in name:
            check_collision(name, wait(self._tree.read_children_through, paths.TOPICS))

    def _write(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Write the nodes of a new topic. The controller sees them, and elects the leaders."""
        path, config_path = paths.topic(topic.name), paths.config("topics", topic.name)
        settings = encode_settings(overrides)
        while True:
            config_exists = self._tree.exists(config_path)
            config: Operation = Set(config_path, settings) if config_exists else Create(config_path, settings)
            try:
                self._tree.commit([config, Create(path, encode_topic(topic))])
                return
            except NodeExists as error:
                if error.path != config_path:
                    raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {topic.name} already exists") from error
            except NoNode as error:  # the settings of a deleted topic of this name are gone by now
                if error.path != config_path or not config_exists:
                    raise
            except TreeError as error:
                raise KafkaError(Errors.LEADER_NOT_AVAILABLE, f"topic {topic.name}: {error}") from error

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        errors = {}
        for name in names:
            error = KafkaError(Errors.LEADER_NOT_AVAILABLE, f"the leaders of {name} are not elected yet")
            try:
                self.create_on_demand(name)
            except KafkaError as refusal:
                if refusal.code != Errors.TOPIC_ALREADY_EXISTS:
                    error = refusal
            errors[name] = error
        return errors

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        self._allocate_producer_ids(done)
