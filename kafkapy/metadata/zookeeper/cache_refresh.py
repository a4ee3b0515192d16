"""Reads nodes that have changed from ZooKeeper into the node cache, and sets watches on the nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from kafkapy.metadata.tree import Event, Node, split_path
from kafkapy.metadata.zookeeper.node_cache import NodeCache, child_path
from kafkapy.metadata.zookeeper.session import Session

# (path, True) reads the names of a node's children, (path, False) its data.
Read = tuple[str, bool]
_T = TypeVar("_T")


class Refresh:
    """Refreshes the cache of nodes from ZooKeeper, with up to `window` reads in flight.

    `roots` are the names below "/" whose nodes are cached (None: all). Nodes below the paths in `leaves` are not
    cached.
    """

    def __init__(
        self,
        session: Session,
        cache: NodeCache,
        roots: Collection[str] | None,
        leaves: Collection[str],
        window: int,
        timeout: float,
    ) -> None:
        self._session = session
        self._cache = cache
        self._roots = roots
        self._leaves = frozenset(leaves)
        self._window = window
        self._timeout = timeout

    def run(self, stale: Iterable[Read]) -> list[Event]:
        """Read the stale nodes, and every node found on the way that is not cached yet. Then apply all that was read to
        the cache at once, and return the events for watches."""
        found: dict[str, Node | None] = {}
        known = self._cache.nodes
        asked_for: set[Read] = set()
        wanted = {
            read for path, of_children in stale for read in ((path, of_children), *_unknown_ancestors(path, known))
        }
        wanted = {read for read in wanted if self._is_followed(read)}
        while wanted:
            asked_for |= wanted
            following: set[Read] = set()
            for (path, of_children), asked in pipelined(sorted(wanted), self._ask, self._window):
                if not of_children:
                    found[path] = node = self._session.node(path, asked, self._timeout)
                    if path in known and node is not None and node.created != known[path].created != 0:
                        below = (other for other in self._cache.subtree(path) if other != path)
                        following.update(read for other in below for read in both(other))
                    continue
                names = self._session.children(path, asked, self._timeout)
                if names is None:
                    found[path] = None
                    continue
                present = {child_path(path, name) for name in names if path != "/" or self._is_root_followed(name)}
                for child in present:
                    # unknown, or deleted and created again
                    if child not in known or found.get(child, known[child]) is None:
                        following.update(both(child))
                        asked_for.difference_update(both(child) if child in found else ())
                if path in known:
                    found.update((child, None) for child in self._cache.child_paths(path) if child not in present)
            wanted = {read for read in following - asked_for if self._is_followed(read)}
        return self._cache.apply(found)

    def _ask(self, read: Read) -> Any:
        path, of_children = read
        return self._session.read_children(path) if of_children else self._session.read(path)

    def _is_followed(self, read: Read) -> bool:
        path, of_children = read
        if not self._leaves:
            return True
        if path in self._leaves:
            return not of_children
        while path != "/":
            path = split_path(path)[0]
            if path in self._leaves:
                return False
        return True

    def _is_root_followed(self, name: str) -> bool:
        return self._roots is None or name in self._roots


def both(path: str) -> tuple[Read, Read]:
    """Return the two reads of the node at this path: that of its data and that of its children's names."""
    return (path, False), (path, True)


def _unknown_ancestors(path: str, known: Collection[str]) -> Iterator[Read]:
    while path != "/" and (path := split_path(path)[0]) not in known:
        yield from both(path)


def pipelined(items: Iterable[_T], send: Callable[[_T], Any], window: int) -> Iterator[tuple[_T, Any]]:
    """Yield each item with the result of `send(item)`. Up to `window` items are sent before the first result is
    yielded, so that several requests are in flight."""
    sent: deque[tuple[_T, Any]] = deque()
    for item in items:
        sent.append((item, send(item)))
        if len(sent) >= window:
            yield sent.popleft()
    yield from sent
