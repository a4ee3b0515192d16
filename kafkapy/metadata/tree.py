"""The tree interface that all metadata is written against: the few operations of ZooKeeper that Kafka uses.

A node has data, a version that each change of the data increases by one, and children. Reads come from memory. A change
is a list of operations that are applied all or none: `submit` hands it to the tree's own thread, `commit` also waits
for it. Implementations: LocalTree (SQLite) and ZooKeeperTree. Kafka's counterpart is KafkaZkClient.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

ANY_VERSION = -1


class Node(NamedTuple):
    """A node of the tree. `created` and `changed` are the zxids of the node's creation and of the last write of its
    data.

    An `ephemeral` node is deleted when the session that created it ends. `mine` is True if this tree's own session
    created the ephemeral node.
    """

    data: bytes
    version: int
    created: int
    changed: int
    ephemeral: bool
    mine: bool = False


class Create(NamedTuple):
    """Create a node whose parent exists. The result is the node's path; with `sequence`, it ends in ten added digits.

    An ephemeral node is deleted with its session and cannot have children.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace a node's data if it has this version. The result is the new Node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children if it has this version. The result is None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the change unless the node exists with this version. The result is the Node."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check
Done = Callable[["list[Any] | None", "TreeError | None"], None]


class TreeError(Exception):
    """A change that was refused or failed, or a read of a node that does not exist."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNode(TreeError):
    """The node, or the parent of a node to be created, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class NodeExists(TreeError):
    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} already exists")


class BadVersion(TreeError):
    """The node was changed meanwhile. `found` is None if the present version is unknown."""

    def __init__(self, path: str, expected: int, found: int | None = None) -> None:
        super().__init__(
            path, f"{path} has {'another version' if found is None else f'version {found}'}, not {expected}"
        )


class NotEmpty(TreeError):
    def __init__(self, path: str) -> None:
        super().__init__(path, f"{path} has children")


class NoChildrenForEphemerals(TreeError):
    def __init__(self, path: str) -> None:
        super().__init__(path, f"{path} is ephemeral and cannot have children")


class TreeUnavailable(TreeError):
    """The tree is closed or its store failed. After a failure, a restart may show that the change was made."""


class TreeUnreachable(TreeUnavailable):
    """The tree is closed, or ZooKeeper has not answered for a session time-out. The change may or may not have been
    made, which a later read shows. The caller may retry the change."""


class Event(NamedTuple):
    """A change seen by a watch. `kind` is CREATED, CHANGED, DELETED or CHILDREN (a child of `path` was created or
    deleted)."""

    kind: str
    path: str


CREATED = "created"
CHANGED = "changed"
DELETED = "deleted"
CHILDREN = "children"


class Tree(ABC):
    """A tree of nodes. Any thread may call the methods; callbacks are called on the tree's own thread."""

    @abstractmethod
    def find(self, path: str) -> Node | None:
        """Return the node, or None."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted. Raises NoNode."""

    @abstractmethod
    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        """Apply the operations, all or none, and call `done(results, None)` or `done(None, error)`.

        When `done` is called, the change is durable and visible to all reads. Changes are applied in the order
        submitted. If the tree is closed, `done` is called at once on the caller's thread.
        """

    @abstractmethod
    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call back after each change of this node or its list of children, until the returned function is called.

        An empty path watches every node. Unlike ZooKeeper's, a watch fires repeatedly. Callbacks run before the
        change's `done` and must not block.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish the submitted changes and delete the ephemeral nodes. Later changes fail with TreeUnreachable."""

    @abstractmethod
    def on_tree_thread(self) -> bool:
        """Return True on the tree's own thread, which must not wait for the tree."""

    @abstractmethod
    def on_new_session(self, callback: Callable[[], None]) -> None:
        """Call back when a new session has replaced an expired one, so that the ephemeral nodes of this process are
        gone.

        The callback must not block. A local tree has a single session and never calls back.
        """

    def read_through(
        self, wanted: Sequence[str], done: Callable[[list[Node | None] | None, TreeError | None], None]
    ) -> None:
        """Read nodes from the store, past the cache, and call `done(nodes, None)` or `done(None, error)`.

        This is for nodes that the tree does not keep in its cache, so that `find` cannot return them.
        """
        done([self.find(path) for path in wanted], None)

    @property
    def is_reachable(self) -> bool:
        """True if changes can be expected to complete soon: the connection to the store is not lost."""
        return True

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNode."""
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Submit the change, wait, and return the results or raise the error. Do not call from callbacks or network
        threads."""
        if self.on_tree_thread():
            raise RuntimeError("a callback of the tree must not wait for the tree")
        finished = threading.Event()
        outcome: list[Any] = [None, None]

        def done(results: list[Any] | None, error: TreeError | None) -> None:
            outcome[:] = [results, error]
            finished.set()

        self.submit(operations, done)
        finished.wait()
        if outcome[1] is not None:
            raise outcome[1]
        results: list[Any] = outcome[0]
        return results

    def split_into_changes(self, operations: Sequence[Operation]) -> list[list[Operation]]:
        """Split operations into as few changes as the store's size limit allows; usually one."""
        return [list(operations)]

    def submit_in_order(self, changes: Sequence[Sequence[Operation]], done: Callable[[TreeError | None], None]) -> None:
        """Submit the changes one after the other, and stop at the first that fails."""
        if not changes:
            done(None)
            return

        def made(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.submit_in_order(changes[1:], done)

        self.submit(changes[0], made)

    def ensure(self, *paths: str) -> None:
        """Create the missing nodes among these paths and their parents, all in one change."""
        unseen: set[str] = set()  # they exist, but our login may not read them
        while True:
            missing: dict[str, None] = {}
            for path in paths:
                parts = path.strip("/").split("/")
                for depth in range(1, len(parts) + 1):
                    ancestor = "/" + "/".join(parts[:depth])
                    if not self.exists(ancestor) and ancestor not in unseen:
                        missing[ancestor] = None
            if not missing:
                return
            try:
                self.commit([Create(path) for path in missing])
            except NodeExists as error:  # another broker creates them too: compute the rest again
                if not self.exists(error.path):
                    unseen.add(error.path)

    def subtree(self, path: str) -> list[str]:
        """Return the paths of a node and of all nodes below, children before parents; [] if the node does not exist."""
        if not self.exists(path):
            return []
        found: list[str] = []
        pending = [path]
        while pending:
            current = pending.pop()
            found.append(current)
            try:
                pending.extend(f"{current.rstrip('/')}/{name}" for name in self.children(current))
            except NoNode:
                pass  # deleted meanwhile
        found.reverse()
        return found


def wait(change: Callable[..., None], *arguments: Any, **keywords: Any) -> Any:
    """Call a registry method that takes `done` as its last argument; wait, and return its result or raise its error.

    Do not call from the tree's callbacks or network threads. `done` takes (error) or (result, error).
    """
    finished = threading.Event()
    outcome: list[Any] = []

    def done(*values: Any) -> None:
        outcome.extend(values)
        finished.set()

    change(*arguments, done, **keywords)
    finished.wait()
    if outcome[-1] is not None:
        # no local variable holds it: the traceback refers to this frame, which would make a reference cycle
        raise outcome.pop()
    return outcome[0] if len(outcome) > 1 else None


def split_path(path: str) -> tuple[str, str]:
    """Return the parent path and the name of a path. Raises ValueError for an invalid path."""
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path or "\0" in path:
        raise ValueError(f"{path!r} is not a valid node path")
    parent, _, name = path.rpartition("/")
    if name in (".", ".."):
        raise ValueError(f"{path!r} is not a valid node path")
    return parent or "/", name
