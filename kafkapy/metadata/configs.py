"""Stored configurations: `/config/topics/NAME`, `/config/brokers/ID` and `/config/brokers/<default>`.

They are texts by name, as they were set; who uses them parses them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, Delete, Event, Node, NodeExists, NoNode, Operation, Set, Tree, TreeError

TOPICS = "topics"
BROKERS = "brokers"

_NOTE_VERSION = 2

log = logging.getLogger("kafkapy.metadata.configs")

Finished = Callable[["KafkaError | None"], None]


class ConfigRegistry:
    """The stored configurations in the tree. Reads come from memory; `done(error)` comes on the tree's thread."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._last: tuple[Node, dict[str, str]] | None = None  # a start asks again and again for one topic's

    def topic(self, name: str) -> dict[str, str]:
        """A topic's overrides; empty for one that has none or is not there."""
        return self._read(paths.config(TOPICS, name))

    def broker(self, broker_id: int) -> dict[str, str]:
        """A broker's own dynamic settings."""
        return self._read(paths.config(BROKERS, str(broker_id)))

    def broker_default(self) -> dict[str, str]:
        """The dynamic settings of all brokers."""
        return self._read(paths.config(BROKERS, paths.DEFAULT_ENTITY))

    def set_topic(self, name: str, overrides: Mapping[str, str], done: Finished) -> None:
        """Replaces a topic's overrides; UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted meanwhile."""
        path = paths.config(TOPICS, name)

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NoNode):
                done(KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"))
            else:
                done(_as_kafka(error))

        self._tree.submit([Set(path, encode_settings(overrides)), *self._note(TOPICS, name)], written)

    def set_broker(self, broker_id: int, values: Mapping[str, str], done: Finished) -> None:
        """Replaces a broker's own dynamic settings."""
        self._write(str(broker_id), values, done)

    def set_broker_default(self, values: Mapping[str, str], done: Finished) -> None:
        """Replaces the dynamic settings of all brokers."""
        self._write(paths.DEFAULT_ENTITY, values, done)

    def watch_broker(self, broker_id: int, callback: Callable[[], None]) -> None:
        """Calls back after each change of this broker's dynamic settings or of all brokers'; it must only enqueue."""

        def changed(_: Event) -> None:
            callback()

        for entity in (str(broker_id), paths.DEFAULT_ENTITY):
            self._tree.watch(paths.config(BROKERS, entity), changed)

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
        except (ValueError, AttributeError) as error:  # as Kafka has it: the same as none
            log.error("the settings at %s cannot be read, and count as none: %s", path, error)
            return {}

    def _write(self, entity: str, values: Mapping[str, str], done: Finished) -> None:
        path, data = paths.config(BROKERS, entity), encode_settings(values)
        note = self._note(BROKERS, entity)

        def created(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NodeExists):
                self._tree.submit([Set(path, data), *note], written)
            else:
                done(_as_kafka(error))

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            done(_as_kafka(error))

        if self._tree.exists(path):
            self._tree.submit([Set(path, data), *note], written)
        else:
            self._tree.submit([Create(path, data), *note], created)

    def _note(self, kind: str, entity: str) -> list[Operation]:
        """Tells Kafka's brokers and tools of the change. Notes from before are old enough to go."""
        if not self._tree.exists(paths.CONFIG_CHANGES):
            return []
        for name in self._tree.children(paths.CONFIG_CHANGES):
            self._tree.submit([Delete(f"{paths.CONFIG_CHANGES}/{name}")], _ignore)
        value = {"version": _NOTE_VERSION, "entity_path": f"{kind}/{entity}"}
        return [Create(f"{paths.CONFIG_CHANGES}/config_change_", paths.to_json(value), sequence=True)]


def encode_settings(values: Mapping[str, str]) -> bytes:
    """What a node of stored settings holds."""
    return paths.to_json({"version": 1, "config": dict(values)})


def _as_kafka(error: TreeError | None) -> KafkaError | None:
    if error is None:
        return None
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the configuration could not be stored: {error}")


def _ignore(results: list[Any] | None, error: TreeError | None) -> None:
    """Others throw old notes away too."""
