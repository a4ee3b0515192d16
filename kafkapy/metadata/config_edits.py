"""Changes of single settings of users, client ids and addresses, in nodes that other programs change at the same time.

Source: AdminZkClient.changeConfigs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.configs import ATTEMPTS, ConfigRegistry, Finished, as_kafka, encode_settings
from kafkapy.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
    TreeError,
)

Edit = Callable[[dict[str, str]], None]


class ConfigEdit:
    """A change of the settings of one entity: reads its node, writes it if it has the same version, and otherwise
    begins again.

    `kind` is users, clients or ips. `entity` is the name in paths, `USER/clients/CLIENT` for a client id of a user.
    `edit` changes a dictionary of settings; a KafkaError that it raises is passed to `done`.
    """

    def __init__(self, tree: Tree, configs: ConfigRegistry, kind: str, entity: str, edit: Edit, done: Finished) -> None:
        self._tree = tree
        self._configs = configs
        self._kind = kind
        self._entity = entity
        self._path = paths.config(kind, entity)
        self._edit = edit
        self._done = done

    def start(self) -> None:
        """Make the change, and call `done` on the tree's thread."""
        self._attempt(ATTEMPTS)

    def _attempt(self, left: int) -> None:
        """Change the node, with `left` more attempts if another program changes it at the same time."""

        def read(nodes: list[Any] | None, error: TreeError | None) -> None:
            if nodes is None:
                self._done(as_kafka(error))
            else:
                self._write(nodes[0], left)

        # Not from memory: an old version would only fail, but a node of another program may not be in memory yet.
        self._tree.read_through([self._path], read)

    def _write(self, node: Node | None, left: int) -> None:
        try:
            whole = paths.from_json(node.data, self._path) if node is not None else {}
            settings = dict(whole.get("config", {}))
            self._edit(settings)
        except KafkaError as error:
            self._done(error)
            return
        except (ValueError, TypeError) as error:
            what = "user" if self._kind == "users" else "entity"
            self._done(KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the {what} cannot be changed: {error}"))
            return
        changes = self._changes(node, settings)
        if not changes:
            self._done(None)
            return

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, (BadVersion, NodeExists, NoNode, NotEmpty)) and left > 1:
                self._attempt(left - 1)
            else:
                self._done(as_kafka(error))

        self._tree.submit([*changes, *self._configs.notify(self._kind, self._entity)], written)

    def _changes(self, node: Node | None, settings: dict[str, str]) -> list[Operation]:
        if node is None:
            return [*self._missing_parents(), Create(self._path, encode_settings(settings))] if settings else []
        if settings or self._children(self._path):
            return [Set(self._path, encode_settings(settings), node.version)]
        return [Delete(self._path, node.version), *self._empty_parents()]

    def _children(self, path: str) -> list[str]:
        try:
            return self._tree.children(path)
        except NoNode:  # not in the cache yet: if the node has children, deleting it fails, and is tried again
            return []

    def _parents(self) -> list[str]:
        """Return the paths of the node of the user and of its list of client ids, for a client id of a user."""
        user, found, _ = self._entity.partition("/")
        return [paths.config(self._kind, user), paths.config(self._kind, f"{user}/clients")] if found else []

    def _missing_parents(self) -> list[Operation]:
        return [Create(path) for path in self._parents() if not self._tree.exists(path)]

    def _empty_parents(self) -> list[Operation]:
        """Return the deletions of the parents that are left without children, and have no settings."""
        operations: list[Operation] = []
        child = self._path
        for parent in reversed(self._parents()):
            node = self._tree.find(parent)
            if node is None or self._children(parent) != [child.rpartition("/")[2]] or _has_settings(node, parent):
                break
            operations.append(Delete(parent, node.version))
            child = parent
        return operations


def _has_settings(node: Node, path: str) -> bool:
    try:
        return bool(paths.from_json(node.data, path).get("config"))
    except ValueError:
        return True
