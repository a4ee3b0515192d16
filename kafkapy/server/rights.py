"""Remembers what clients are allowed to do, as long as the access rules stay the same.

A request for topics that its client has used before costs one comparison of generations and a look into a set. Only
permissions are remembered: a denial is decided, logged and counted each time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from kafkapy.metadata.topic_rules import MAX_NAME_LENGTH

# A client can name topics that do not exist, as many as it likes, and may be allowed to use all of them.
MOST_NAMES: Final = 100_000  # names that are remembered for all clients together
_LONGEST_NAME: Final = MAX_NAME_LENGTH  # no topic has a longer name, and longer transactional ids are not remembered

_NEVER: Final = object()  # equals no generation


class Rights:
    """The permissions of one client (a principal at an address) on one listener that were found under one generation of
    the access rules. All connections of the client to the listener share the object. Two objects are never equal."""

    __slots__ = ("__weakref__", "generation", "ids", "is_broker", "principal", "reads", "writes")

    def __init__(self, principal: str, generation: object) -> None:
        self.principal = principal
        self.generation = generation
        self.reads: set[str] = set()  # the names of topics that the client may read
        self.writes: set[str] = set()
        self.ids: set[str] = set()  # the transactional ids with which the client may write
        self.is_broker = False  # True: the client may do ClusterAction

    def forget(self) -> None:
        """Forget all names."""
        self.reads.clear()
        self.writes.clear()
        self.ids.clear()


class RememberedRights:
    """The Rights of all connected clients. Any thread may call the methods."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._lock = threading.Lock()
        # By principal, listener and address, generation: an idle connection may still have an object of earlier rules.
        self._all: WeakValueDictionary[tuple[str, str, int], Rights] = WeakValueDictionary()
        self._names = 0

    def of(self, principal: str, where: str, generation: int | None) -> Rights:
        """Return the Rights of a client. `where` is the listener and the address of its connection, as LISTENER://HOST.
        With the generation None, the Rights are forgotten with the request."""
        if generation is None:
            return Rights(principal, _NEVER)
        key = principal, where, generation
        with self._lock:
            rights = self._all.get(key)
            if rights is None:
                rights = self._all[key] = Rights(principal, generation)
            return rights

    def forget_outdated(self, generation: int | None) -> None:
        """Forget the names of all generations but the present one, which idle connections would keep in memory."""
        for reference in self._all.valuerefs():
            rights = reference()
            if rights is not None and rights.generation != generation:
                with self._lock:  # acquired again for each, because network threads wait for this lock
                    self._names -= len(rights.reads) + len(rights.writes) + len(rights.ids)
                    rights.forget()

    def remember(self, allowed: set[str], names: Iterable[str]) -> None:
        """Add names to `allowed`, which is `reads`, `writes` or `ids` of a client's Rights. When all clients together
        have `most_names` names, forget all of them first."""
        with self._lock:
            for name in names:
                if name not in allowed and len(name) <= _LONGEST_NAME:
                    if self._names >= self._most_names:
                        self._forget()
                    allowed.add(name)
                    self._names += 1

    def _forget(self) -> None:
        # Names of clients that have gone are still counted until this happens.
        for rights in self._all.values():
            rights.forget()
        self._names = 0
