"""The interface of the metadata tree that the broker's code uses: the few operations of ZooKeeper that Kafka needs.

A node has data, a version that each change of the data increases by one, and children. Reads come from memory. A change
is a list of operations, of which either all or none are applied. `submit` hands a change to the tree's own thread;
`commit` also waits until the change is made. Implementations: LocalTree (SQLite) and ZooKeeperTree. Kafka's counterpart
is KafkaZkClient.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

ANY_VERSION = -1
_E = TypeVar("_E")


class Node(NamedTuple):
    """A node of the metadata tree. `created` and `changed` are the zxids (numbers of changes, as in ZooKeeper) of the
    node's creation and of the last write of its data.

    An `ephemeral` node is deleted when the session that created it ends. `mine` is True for an ephemeral node that was
    created by this process's current session.
    """

    data: bytes
    version: int
    created: int
    changed: int
    ephemeral: bool
    mine: bool = False


class Create(NamedTuple):
    """The operation that creates a node whose parent exists. Its result is the path of the node. With `sequence`, ten
    digits are appended to the path, which number the parent's sequence nodes.

    An ephemeral node is deleted when the session that created it ends, and it cannot have children.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """The operation that replaces a node's data if the node has this version. Its result is the new Node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """The operation that deletes a node without children if the node has this version. Its result is None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """The operation that makes the whole change fail unless the node exists with this version. Its result is the
    Node."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check
Done = Callable[["list[Any] | None", "TreeError | None"], None]


class TreeError(Exception):
    """Raised or passed to a callback if a change was refused or failed, or if a node to be read does not exist. `path`
    is the path of the node."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNode(TreeError):
    """Raised if the node at `path` does not exist. For a node to be created, `path` is that of its missing parent."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class NodeExists(TreeError):
    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} already exists")


class BadVersion(TreeError):
    """Raised if a node does not have the version `expected`, because the node was changed meanwhile. `found` is its
    current version, or None if that is unknown."""

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
    """Raised if the metadata tree is closed or its store (SQLite or ZooKeeper) failed. After a failure of the store,
    the change may still have been made, which shows after a restart."""


class TreeUnreachable(TreeUnavailable):
    """Raised if the metadata tree is closed, or if ZooKeeper has not answered for a session time-out. The change may or
    may not have been made, which a later read shows. The caller may retry the change."""


class Event(NamedTuple):
    """A change of the metadata tree, as passed to the callback of a watch. `kind` is CREATED, CHANGED, DELETED or
    CHILDREN (a child of `path` was created or deleted)."""

    kind: str
    path: str


CREATED = "created"
CHANGED = "changed"
DELETED = "deleted"
CHILDREN = "children"


class Tree(ABC):
    """The interface of a metadata tree of nodes, like that of ZooKeeper. Any thread may call the methods, except where
    they say otherwise. Callbacks are called on the tree's own thread."""

    @abstractmethod
    def find(self, path: str) -> Node | None:
        """Return the node at this path, or None if there is no such node."""

    @property
    def hidden(self) -> Sequence[str]:
        """The sorted paths of the nodes that the broker's login may not read. They are treated as not existing. Only
        ZooKeeper has such nodes."""
        return ()

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of the node at this path. Raises NoNode if the node does not
        exist."""

    @abstractmethod
    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        """Apply the operations as one change, all or none, then call `done(results, None)` with the result of each
        operation, or `done(None, error)`.

        When `done` is called, the change is durable and visible to all reads. Changes are applied in the order in which
        they are submitted. If the tree is closed, `done` is called at once on the caller's thread.
        """

    @abstractmethod
    def watch(self, path: str, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` after each change of the node at this path or of its list of children. Return a function that
        ends the watch.

        An empty path watches every node. Unlike a watch of ZooKeeper, the callback is called again and again. It is
        called before the `done` of the change and must not block.
        """

    @abstractmethod
    def watch_all(self, callback: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Call `callback` with the events of all nodes, many at a time if many nodes have changed. Return a function
        that ends the watch. As with `watch`, the callback is called before the `done` of the changes."""

    @abstractmethod
    def close(self) -> None:
        """Finish the submitted changes, delete the ephemeral nodes of this process and close the tree. Later changes
        fail with TreeUnreachable."""

    @abstractmethod
    def on_tree_thread(self) -> bool:
        """Return True if the caller runs on the tree's own thread, which must not wait for the tree."""

    @abstractmethod
    def on_new_session(self, callback: Callable[[], None]) -> None:
        """Call `callback` each time that a new session has replaced an expired one, which means that the ephemeral
        nodes of this process are gone.

        The callback must not block. A local tree has a single session, so its callbacks are never called.
        """

    def read_through(
        self, wanted: Sequence[str], done: Callable[[list[Node | None] | None, TreeError | None], None]
    ) -> None:
        """Read the nodes at the paths `wanted` from the store (SQLite or ZooKeeper) instead of the cache. Call
        `done(nodes, None)`, with None for a path without a node, or `done(None, error)`.

        This is for nodes that the tree does not keep in its cache, so that `find` cannot return them.
        """
        done([self.find(path) for path in wanted], None)

    def read_children_through(self, path: str, done: Callable[[list[str] | None, TreeError | None], None]) -> None:
        """Read the names of the children of the node at `path` from the store instead of the cache. Call `done(names,
        None)`, with no names for a node that does not exist, or `done(None, error)`."""
        done(self.children(path) if self.exists(path) else [], None)

    def load_below(self, paths: Sequence[str], done: Callable[[TreeError | None], object]) -> None:
        """Keep the nodes below these paths in the cache from now on, and call `done(None)` when they have been read, or
        `done(error)`. No watch fires for what is read.

        A tree in ZooKeeper need not keep what only a controller reads. Other trees keep all nodes all the time.
        """
        done(None)

    def unload_below(self, paths: Sequence[str]) -> None:  # noqa: B027 (most trees forget nothing)
        """Undo `load_below`: remove the nodes below these paths from the cache. No watch fires."""

    def refresh(self, paths: Sequence[str], done: Callable[[TreeError | None], object]) -> None:
        """Read nodes that have no watches again, because another program may have changed them. Call `done(None)` when
        the cache shows them, or `done(error)`."""
        done(None)

    @property
    def is_reachable(self) -> bool:
        """True if the tree is connected to its store, so that changes can be expected to complete soon."""
        return True

    def get(self, path: str) -> Node:
        """Return the node at this path. Raises NoNode if there is no such node."""
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Apply the operations as one change, all or none, wait until the change is made, and return the result of each
        operation. Raises TreeError if the change fails.

        Must not be called from the tree's callbacks, which raises RuntimeError, or on network threads, because it
        blocks.
        """
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
        """Return the operations split into as few changes as the store's size limit for a change allows, usually
        one."""
        return [list(operations)]

    def submit_in_order(self, changes: Sequence[Sequence[Operation]], done: Callable[[TreeError | None], None]) -> None:
        """Submit each change when the previous one has been made, and stop at the first change that fails. Call `done`
        with that change's error, or with None when all changes have been made."""
        if not changes:
            done(None)
            return

        def submitted(_: list[Any] | None, error: TreeError | None) -> None:
            if error is not None:
                done(error)
            else:
                self.submit_in_order(changes[1:], done)

        self.submit(changes[0], submitted)

    def ensure(self, *paths: str) -> None:
        """Create those of the nodes at these paths, and of their ancestors, that do not exist, all in one change.
        Blocks."""
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
        """Return the path of a node and the paths of all nodes below it, children before parents, or [] if the node
        does not exist."""
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
    """Call `change(*arguments, done, **keywords)`, wait until `done` is called, and return the result or raise the
    error passed to `done`.

    `change` is a method that takes the callback `done` as its last positional argument and calls it as `done(error)` or
    `done(result, error)`. Do not call this function from the tree's callbacks or on network threads, because it blocks.
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


def wait_for_all(changes: Sequence[Callable[[Callable[[_E | None], None]], object]]) -> list[_E | None]:
    """Call each `change(done)`, wait until all have called `done(error)`, and return the errors in order.

    The changes are sent one after the other, without waiting for those before. Blocks, as `wait` does.
    """
    outcomes: list[_E | None] = [None] * len(changes)
    finished = threading.Semaphore(0)

    def done(at: int, error: _E | None) -> None:
        outcomes[at] = error
        finished.release()

    for at, change in enumerate(changes):
        change(partial(done, at))
    for _ in changes:
        finished.acquire()
    return outcomes


def split_path(path: str) -> tuple[str, str]:
    """Return the parent's path and the last name of a node's path. Raises ValueError for an invalid path."""
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path or "\0" in path:
        raise ValueError(f"{path!r} is not a valid node path")
    parent, _, name = path.rpartition("/")
    if name in (".", ".."):
        raise ValueError(f"{path!r} is not a valid node path")
    return parent or "/", name
