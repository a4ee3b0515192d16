"""The few operations of a ZooKeeper tree that everything above is written against.

A node has data, a version that every change of the data raises by one, and children. Reads come from memory.
A change is a list of operations that happens as a whole or not at all: `submit` hands it to the tree's own
thread, `commit` waits for it. Kafka's counterpart is KafkaZkClient.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

ANY_VERSION = -1


class Node(NamedTuple):
    """One node. `created` and `changed` are the numbers of the changes that made it and wrote it last (zxid).

    `ephemeral` ones are gone with the session that made them; `mine` is whether that is the session of this tree.
    """

    data: bytes
    version: int
    created: int
    changed: int
    ephemeral: bool
    mine: bool = False


class Create(NamedTuple):
    """Makes a node; its parent must be there. Gives the path made: a sequence adds ten digits to it.

    An ephemeral node is gone once the process that made it is, and has no children.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replaces a node's data if it has this version. Gives the new Node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Removes a node without children if it has this version. Gives None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Demands that a node is there with this version. Gives the Node."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check
Done = Callable[["list[Any] | None", "TreeError | None"], None]


class TreeError(Exception):
    """A change that did not happen, or a read of what is not there."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNode(TreeError):
    """There is no such node, or no parent to create it under."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class NodeExists(TreeError):
    def __init__(self, path: str) -> None:
        super().__init__(path, f"there already is a node {path}")


class BadVersion(TreeError):
    """Somebody else changed the node in between. `found` is None where only that is known."""

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
    """The tree is closed, or its home failed. After a failure a restart may show that the change was made."""


class Event(NamedTuple):
    """What a watch sees: `kind` is CREATED, CHANGED, DELETED or CHILDREN (a child of `path` came or went)."""

    kind: str
    path: str


CREATED = "created"
CHANGED = "changed"
DELETED = "deleted"
CHILDREN = "children"


class Tree(ABC):
    """A tree of nodes. Every method may be called from any thread; callbacks come on the tree's own thread."""

    @abstractmethod
    def find(self, path: str) -> Node | None:
        """The node, or None."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted; raises NoNode."""

    @abstractmethod
    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        """Makes the operations happen, all or none, and calls `done(results, None)` or `done(None, error)`.

        When done is called the change is durable and every read sees it. Changes happen in the order submitted.
        On a closed tree done is called at once, by the caller itself.
        """

    @abstractmethod
    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Calls back after each change of this node or of the list of its children, until the result is called.

        An empty path watches every node. Unlike ZooKeeper's, a watch stays. The callback must only enqueue: it runs
        before the change's `done`.
        """

    @abstractmethod
    def close(self) -> None:
        """Finishes what was submitted; later changes fail with TreeUnavailable. Ephemeral nodes are gone."""

    @abstractmethod
    def on_tree_thread(self) -> bool:
        """Whether the caller is a callback, which must not wait for the tree."""

    @abstractmethod
    def on_new_session(self, callback: Callable[[], None]) -> None:
        """Calls back once a session has ended and another begun: what this process had made ephemeral is gone.

        The callback must only enqueue. A tree of the process's own has one session, for life: it never calls.
        """

    def look(self, wanted: Sequence[str], done: Callable[[list[Node | None] | None, TreeError | None], None]) -> None:
        """Calls `done(nodes, None)` or `done(None, error)` with these nodes as they are at home.

        For nodes below those that a tree was told not to follow: `find` does not know them.
        """
        done([self.find(path) for path in wanted], None)

    @property
    def answers(self) -> bool:
        """Whether a change that is submitted now can be expected to be made soon: its home has not gone away."""
        return True

    def get(self, path: str) -> Node:
        """The node; raises NoNode."""
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """As `submit`, but waits and gives the results or raises the error. Not from callbacks or processors."""
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

    def in_changes(self, operations: Sequence[Operation]) -> list[list[Operation]]:
        """The operations as one change, or, if they are too many for one, in as few as the tree's home takes."""
        return [list(operations)]

    def submit_in_order(self, changes: Sequence[Sequence[Operation]], done: Callable[[TreeError | None], None]) -> None:
        """As `submit`, one change after the other; the first that fails is the last."""
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
        """Creates each of these nodes that is not there, with its parents, in one change."""
        unseen: set[str] = set()  # there, but may not be read with our login
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
            except NodeExists as error:  # another broker makes them too; see what is left
                if not self.exists(error.path):
                    unseen.add(error.path)

    def subtree(self, path: str) -> list[str]:
        """The node and all below it, children before their parents; empty if it is not there."""
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
                pass  # deleted while we looked
        found.reverse()
        return found


def wait(change: Callable[..., None], *arguments: Any, **keywords: Any) -> Any:
    """Runs a change of a registry that takes `done` as its last argument, waits, gives its result or raises its error.

    Not from callbacks of the tree or processors. `done` may be of the form done(error) or done(result, error).
    """
    finished = threading.Event()
    outcome: list[Any] = []

    def done(*values: Any) -> None:
        outcome.extend(values)
        finished.set()

    change(*arguments, done, **keywords)
    finished.wait()
    if outcome[-1] is not None:
        raise outcome.pop()  # no variable for it: its traceback has this function's, and would be a circle
    return outcome[0] if len(outcome) > 1 else None


def split_path(path: str) -> tuple[str, str]:
    """Parent and name. Raises ValueError for a path that cannot be one."""
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path or "\0" in path:
        raise ValueError(f"{path!r} is not the path of a node")
    parent, _, name = path.rpartition("/")
    if name in (".", ".."):
        raise ValueError(f"{path!r} is not the path of a node")
    return parent or "/", name
