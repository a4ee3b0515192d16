"""Reads what is stale of a far tree into the mirror, leaving watches behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from kafkapy.metadata.keeper import Session
from kafkapy.metadata.mirror import Mirror, child_path
from kafkapy.metadata.tree import Event, Node, split_path

# What to read of a path: its children's names, or its data.
Read = tuple[str, bool]
_T = TypeVar("_T")


class Refresh:
    """`roots` are the names below "/" that matter (None: all), `leaves` the paths of nodes below which nothing does;
    up to `window` reads are under way at once."""

    def __init__(
        self,
        session: Session,
        mirror: Mirror,
        roots: Collection[str] | None,
        leaves: Collection[str],
        window: int,
        timeout: float,
    ) -> None:
        self._session = session
        self._mirror = mirror
        self._roots = roots
        self._leaves = frozenset(leaves)
        self._window = window
        self._timeout = timeout

    def run(self, stale: Iterable[Read]) -> list[Event]:
        """Reads these, and everything that they lead to and that is not known; then all of it is known at once."""
        found: dict[str, Node | None] = {}
        known = self._mirror.nodes
        asked_for: set[Read] = set()
        wanted = {read for path, kind in stale for read in ((path, kind), *_unknown_ancestors(path, known))}
        wanted = {read for read in wanted if self._is_followed(read)}
        while wanted:
            asked_for |= wanted
            following: set[Read] = set()
            for (path, of_children), asked in ahead(sorted(wanted), self._ask, self._window):
                if not of_children:
                    found[path] = node = self._session.node(path, asked, self._timeout)
                    if path in known and node is not None and node.created != known[path].created != 0:
                        below = (other for other in self._mirror.subtree(path) if other != path)
                        following.update(read for other in below for read in both(other))
                    continue
                names = self._session.children(path, asked, self._timeout)
                if names is None:
                    found[path] = None
                    continue
                there = {child_path(path, name) for name in names if path != "/" or self._matters(name)}
                for child in there:
                    if child not in known or found.get(child, known[child]) is None:  # new, or there once more
                        following.update(both(child))
                        asked_for.difference_update(both(child) if child in found else ())
                if path in known:
                    found.update((child, None) for child in self._mirror.child_paths(path) if child not in there)
            wanted = {read for read in following - asked_for if self._is_followed(read)}
        return self._mirror.apply(found)

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

    def _matters(self, name: str) -> bool:
        return self._roots is None or name in self._roots


def both(path: str) -> tuple[Read, Read]:
    """All that there is to read of a path."""
    return (path, False), (path, True)


def _unknown_ancestors(path: str, known: Collection[str]) -> Iterator[Read]:
    while path != "/" and (path := split_path(path)[0]) not in known:
        yield from both(path)


def ahead(items: Iterable[_T], send: Callable[[_T], Any], window: int) -> Iterator[tuple[_T, Any]]:
    """Each item and what sending it gave, with up to `window` of them sent before the first is looked at."""
    sent: deque[tuple[_T, Any]] = deque()
    for item in items:
        sent.append((item, send(item)))
        if len(sent) >= window:
            yield sent.popleft()
    yield from sent
