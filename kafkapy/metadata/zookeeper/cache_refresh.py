"""Reads nodes that have changed from ZooKeeper into the node cache, and sets watches on the nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kafkapy.metadata.tree import Event, Node, split_path
from kafkapy.metadata.zookeeper.followed_nodes import FollowedNodes, Read, both
from kafkapy.metadata.zookeeper.node_cache import NodeCache, child_path
from kafkapy.metadata.zookeeper.pipelining import pipelined
from kafkapy.metadata.zookeeper.session import Session

_EMPTY = Node(b"", 0, 0, 0, False)  # a node that is known to exist, and was not read


class Refresh:
    """Refreshes the cache of nodes from ZooKeeper, with up to `window` reads in flight."""

    def __init__(
        self, session: Session, cache: NodeCache, followed: FollowedNodes, window: int, timeout: float
    ) -> None:
        self._session = session
        self._cache = cache
        self._followed = followed
        self._window = window
        self._timeout = timeout

    def run(self, stale: Iterable[Read]) -> list[Event]:
        """Read the stale nodes, and every node found on the way that is not cached yet. Then apply all that was read to
        the cache at once, and return the events for watches."""
        found: dict[str, Node | None] = {}
        known = self._cache.nodes
        asked_for: set[Read] = set()
        # Dicts in place of sets, for the order of the reads: sorting thousands of paths would hold the GIL.
        wanted = self._included(
            read for path, of_children in stale for read in ((path, of_children), *_unknown_ancestors(path, known))
        )
        while wanted:
            asked_for.update(wanted)
            following: dict[Read, None] = {}
            for (path, of_children), result in self._results(wanted):
                if not of_children:
                    found[path] = node = result
                    if path in known and node is not None and node.created != known[path].created != 0:
                        below = (other for other in self._cache.subtree(path) if other != path)
                        following.update((read, None) for other in below for read in both(other))
                elif result is None:
                    found[path] = None
                else:
                    self._note_children(path, result, found, asked_for, following)
            wanted = self._included(read for read in following if read not in asked_for)
        return self._cache.apply(found)

    def _note_children(
        self,
        path: str,
        names: Iterable[str],
        found: dict[str, Node | None],
        asked_for: set[Read],
        following: dict[Read, None],
    ) -> None:
        """Add the reads of a node's unknown children to `following`, and record in `found` that children are gone."""
        known = self._cache.nodes
        are_partitions = self._followed.is_partitions(path)
        if are_partitions and path not in known and found.get(path) is None:  # else it was read for its data, too
            found[path] = _EMPTY
        children = {child_path(path, name) for name in names if path != "/" or self._followed.includes_root(name)}
        for child in children:
            # unknown, or deleted and created again
            if child not in known or found.get(child, known[child]) is None:
                reads = self._followed.reads_of_new(child)
                following.update(dict.fromkeys(reads))
                asked_for.difference_update(reads if child in found else ())
                if are_partitions and found.get(child) is None:
                    found[child] = _EMPTY
        if path in known:
            found.update((child, None) for child in self._cache.child_paths(path) if child not in children)

    def _results(self, wanted: Iterable[Read]) -> Iterator[tuple[Read, Any]]:
        """Yield each read with its result: the names of children, a Node, or None if the node does not exist. Nodes
        without watches are read in bulk.
        """
        watched: list[Read] = []
        others: list[Read] = []
        for read in wanted:
            (watched if self._followed.is_watched(read[0]) else others).append(read)
        for (path, of_children), asked in pipelined(watched, self._ask, self._window):
            get = self._session.children if of_children else self._session.node
            yield (path, of_children), get(path, asked, self._timeout)
        yield from self._session.read_many(others, self._window, self._timeout)

    def _ask(self, read: Read) -> Any:
        path, of_children = read
        return self._session.read_children(path) if of_children else self._session.read(path)

    def _included(self, reads: Iterable[Read]) -> dict[Read, None]:
        return {read: None for read in reads if self._followed.includes(read)}


def _unknown_ancestors(path: str, known: Collection[str]) -> Iterator[Read]:
    while path != "/" and (path := split_path(path)[0]) not in known:
        yield from both(path)
