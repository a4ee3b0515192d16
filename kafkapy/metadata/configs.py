"""Dynamic configurations in the metadata tree: `/config/topics/NAME`, `/config/brokers/ID`,
`/config/brokers/<default>` and `/config/users/NAME`.

Values are stored as the texts that were set. The code that uses a value parses it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.notifications import Notifications
from kafkapy.metadata.tree import (
    BadVersion,
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Tree,
    TreeError,
    TreeUnreachable,
    wait,
)

TOPICS = "topics"
BROKERS = "brokers"
USERS = "users"

ATTEMPTS = 20  # to change a node that others change at the same time

_NOTIFICATION_VERSION = 2

log = logging.getLogger("kafkapy.metadata.configs")

Finished = Callable[["KafkaError | None"], None]
Change = Callable[[dict[str, str]], "dict[str, str] | None"]  # takes the stored settings; None: they stay as they are


class ConfigRegistry:
    """Reads and changes the dynamic configurations of topics and brokers. Reads come from memory.

    A change calls `change(stored settings)` on the caller's thread and replaces the settings with what it returns, or
    leaves them as they are for None. If another program, such as another broker, changes them at the same time,
    `change` is called again with the new ones, so that no change is lost. The methods block until memory shows the
    change, and return what `change` returned. They raise what `change` raises, and KafkaError if the settings cannot be
    read or stored.
    """

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

    def alter_topic(self, name: str, change: Change) -> dict[str, str] | None:
        """Change the configuration overrides of a topic. Raise KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic does
        not exist any more."""
        return self._alter(TOPICS, name, change)

    def alter_broker(self, broker_id: int, change: Change) -> dict[str, str] | None:
        """Change the dynamic settings that apply to this broker only."""
        return self._alter(BROKERS, str(broker_id), change)

    def alter_broker_default(self, change: Change) -> dict[str, str] | None:
        """Change the dynamic settings that apply to all brokers (entity `<default>`)."""
        return self._alter(BROKERS, paths.DEFAULT_ENTITY, change)

    def _read(self, path: str) -> dict[str, str]:
        return self._settings(path, self._tree.find(path))

    def _settings(self, path: str, node: Node | None) -> dict[str, str]:
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

    def _alter(self, kind: str, entity: str, change: Change) -> dict[str, str] | None:
        path = paths.config(kind, entity)
        left = ATTEMPTS
        while True:
            left -= 1
            try:
                # Not from memory, where another broker's last change may be missing.
                (node,) = wait(self._tree.read_through, [path])
                if node is None and kind == TOPICS:
                    raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {entity}")
                values = change(self._settings(path, node))
                if values is not None:
                    data = encode_settings(values)
                    write: Operation = Create(path, data) if node is None else Set(path, data, node.version)
                    wait(self._tree.submit, [write, *self.notify(kind, entity)])
                return values
            except TreeError as error:
                if left == 0 or not isinstance(error, (BadVersion, NodeExists, NoNode)):
                    raise _not_stored(error, "the configuration") from error

    def notify(self, kind: str, entity: str) -> list[Operation]:
        """Return the operation that notifies Kafka's brokers and tools of a change of this configuration, or no
        operation if the tree has no node for notifications. Sometimes also delete old notifications."""
        value = {"version": _NOTIFICATION_VERSION, "entity_path": f"{kind}/{entity}"}
        return self._notifications.notify(paths.to_json(value))


def encode_settings(values: Mapping[str, str]) -> bytes:
    """Return the data of a configuration node with these settings."""
    return paths.to_json({"version": 1, "config": dict(values)})


def as_kafka(error: TreeError | None, what: str = "the configuration") -> KafkaError | None:
    """Return the KafkaError for a request that could not store `what` because of `error`. None if `error` is None."""
    return None if error is None else _not_stored(error, what)


def _not_stored(error: TreeError, what: str) -> KafkaError:
    # REQUEST_TIMED_OUT makes clients retry.
    code = Errors.REQUEST_TIMED_OUT if isinstance(error, TreeUnreachable) else Errors.UNKNOWN_SERVER_ERROR
    return KafkaError(code, f"{what} could not be stored: {error}")
