"""Dynamic configurations in the metadata tree: `/config/topics/NAME`, `/config/brokers/ID`,
`/config/brokers/<default>` and `/config/users/NAME`.

Values are stored as the texts that were set. The code that uses a value parses it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.notifications import Notifications
from kafkapy.metadata.tree import (
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Tree,
    TreeError,
    TreeUnreachable,
)

TOPICS = "topics"
BROKERS = "brokers"
USERS = "users"

_NOTIFICATION_VERSION = 2

log = logging.getLogger("kafkapy.metadata.configs")

Finished = Callable[["KafkaError | None"], None]


class ConfigRegistry:
    """Reads and writes the dynamic configurations of topics and brokers. Reads come from memory. Writes call `done`, on
    the metadata tree's thread, with None or the KafkaError."""

    def __init__(self, tree: Tree, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tree = tree
        self._notifications = Notifications(tree, f"{paths.CONFIG_CHANGES}/config_change_", monotonic)
        # the last decoded node and its settings: when a broker starts, it reads the same topic's settings repeatedly
        self._last: tuple[Node, dict[str, str]] | None = None

    def topic(self, name: str) -> dict[str, str]:
        """Return the configuration overrides of a topic, or {} if the topic has none or does not exist."""
        return self._read(paths.config(TOPICS, name))

    def broker(self, broker_id: int) -> dict[str, str]:
        """Return the dynamic settings that apply to this broker only."""
        return self._read(paths.config(BROKERS, str(broker_id)))

    def broker_default(self) -> dict[str, str]:
        """Return the dynamic settings that apply to all brokers (entity `<default>`)."""
        return self._read(paths.config(BROKERS, paths.DEFAULT_ENTITY))

    def user(self, name: str) -> dict[str, str]:
        """Return the settings of a user: SCRAM credentials and quotas. `name` is the user's name as in paths."""
        return self._read(paths.config(USERS, name))

    def at(self, path: str) -> dict[str, str]:
        """Return the settings in the node at this path, or {} if there are none or they cannot be read."""
        return self._read(path)

    def set_topic(self, name: str, overrides: Mapping[str, str], done: Finished) -> None:
        """Replace the configuration overrides of a topic. `done` gets UNKNOWN_TOPIC_OR_PARTITION if the topic does not
        exist any more."""
        path = paths.config(TOPICS, name)

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NoNode):
                done(KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))
            else:
                done(as_kafka(error))

        self._tree.submit([Set(path, encode_settings(overrides)), *self.notify(TOPICS, name)], written)

    def set_broker(self, broker_id: int, values: Mapping[str, str], done: Finished) -> None:
        """Replace the dynamic settings that apply to this broker only."""
        self._write(str(broker_id), values, done)

    def set_broker_default(self, values: Mapping[str, str], done: Finished) -> None:
        """Replace the dynamic settings that apply to all brokers (entity `<default>`)."""
        self._write(paths.DEFAULT_ENTITY, values, done)

    def _read(self, path: str) -> dict[str, str]:
        node = self._tree.find(path)
        if node is None:
            return {}
        last = self._last
        if last is not None and last[0] is node:
            return dict(last[1])
        try:
            stored = paths.from_json(node.data, path).get("config", {})
            read = {str(name): str(value) for name, value in stored.items()}
            self._last = node, read
            return dict(read)
        except (ValueError, AttributeError) as error:  # as in Kafka, an invalid node counts as no settings
            log.error("the settings at %s cannot be read and are ignored: %s", path, error)
            return {}

    def _write(self, entity: str, values: Mapping[str, str], done: Finished) -> None:
        path, data = paths.config(BROKERS, entity), encode_settings(values)
        notification = self.notify(BROKERS, entity)

        def created(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NodeExists):
                self._tree.submit([Set(path, data), *notification], written)
            else:
                done(as_kafka(error))

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            done(as_kafka(error))

        if self._tree.exists(path):
            self._tree.submit([Set(path, data), *notification], written)
        else:
            self._tree.submit([Create(path, data), *notification], created)

    def notify(self, kind: str, entity: str) -> list[Operation]:
        """Return the operation that notifies Kafka's brokers and tools of a change of this configuration, or no
        operation if the tree has no node for notifications. Sometimes also delete old notifications."""
        value = {"version": _NOTIFICATION_VERSION, "entity_path": f"{kind}/{entity}"}
        return self._notifications.notify(paths.to_json(value))


def encode_settings(values: Mapping[str, str]) -> bytes:
    """Return the data of a configuration node with these settings."""
    return paths.to_json({"version": 1, "config": dict(values)})


def as_kafka(error: TreeError | None, what: str = "the configuration") -> KafkaError | None:
    """Return the error of a change of the tree, by which `what` was to be stored, as the error of a request; None if
    there is none."""
    if error is None:
        return None
    # REQUEST_TIMED_OUT makes clients retry.
    code = Errors.REQUEST_TIMED_OUT if isinstance(error, TreeUnreachable) else Errors.UNKNOWN_SERVER_ERROR
    return KafkaError(code, f"{what} could not be stored: {error}")
