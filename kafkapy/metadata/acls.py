"""ACLs in the metadata tree, at Kafka's paths and in its JSON, with its notifications (ZkData, AclAuthorizer).

The ACLs of a resource pattern are one node, `/kafka-acl/Topic/NAME` if the pattern is literal, or
`/kafka-acl-extended/prefixed/Topic/NAME`. Reads come from an index in memory, which follows the nodes: a change takes
effect on this broker before its response is sent, and on other brokers as soon as the tree shows it. A node that cannot
be decoded completely counts as an ACL that denies everything, because the unreadable part may be a denial.
"""

from __future__ import annotations

import logging
import operator
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.configs import as_kafka
from kafkapy.metadata.notifications import Notifications
from kafkapy.metadata.tree import (
    BadVersion,
    Create,
    Delete,
    Event,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Tree,
    TreeError,
)
from kafkapy.runtime.config_def import ConfigError
from kafkapy.security.acls.bindings import (
    LITERAL,
    PREFIXED,
    STORED_TYPES,
    Binding,
    Entry,
    Filter,
    Pattern,
    decode_entries,
    display_name,
    encode_entries,
    name_of,
)
from kafkapy.security.acls.index import UNREADABLE, AclIndex

log = logging.getLogger("kafkapy.metadata.acls")

_ATTEMPTS = 20  # to change a node that others change at the same time
_STORES: Final = {LITERAL: paths.ACLS, PREFIXED: paths.PREFIXED_ACLS}
# The nodes that a cluster with an authorizer always has (KafkaZkClient.createAclPaths).
ROOTS: Final = (
    *(f"{store}/{display_name(one)}" for store in _STORES.values() for one in STORED_TYPES),
    paths.ACL_CHANGES,
    paths.EXTENDED_ACL_CHANGES,
)
# Java's characters: those beyond U+FFFF are pairs of surrogates.
_NOT_IN_PATHS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

Created = Callable[["list[KafkaError | None]", None], None]
Deleted = Callable[["list[Deletion]", None], None]


class Deletion:
    """The outcome of one filter of a deletion. `acls` has the selected ACLs, each with the error if it was not deleted.
    `error` is set if the ACLs of a resource pattern that the filter matches cannot be read."""

    def __init__(self) -> None:
        self.acls: dict[Binding, KafkaError | None] = {}
        self.error: KafkaError | None = None


class AclRegistry:
    """Reads and writes the ACLs of a metadata tree. Any thread may read; writes call `done` on the tree's thread.

    `index` has all ACLs. It is replaced by each change, and then `on_change()` is called on the tree's thread. The
    constructor blocks.
    """

    def __init__(
        self, tree: Tree, on_change: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree = tree
        self._on_change = on_change
        self._literal_changes = Notifications(tree, f"{paths.ACL_CHANGES}/acl_changes_", monotonic)
        self._other_changes = Notifications(tree, f"{paths.EXTENDED_ACL_CHANGES}/acl_changes_", monotonic)
        self.index = AclIndex()
        self._reading = threading.Lock()
        tree.ensure(*ROOTS)
        # The watch begins before the nodes are read, so that no change is missed; it may read some of them twice.
        tree.watch_all(self._changed)
        self._read(pattern for store in _STORES for pattern in self._stored(store))
        self._refuse_hidden_types()

    def _stored(self, pattern_type: str) -> list[Pattern]:
        """Return the patterns that have a node in one of the stores. Log those that are not Kafka's."""
        found = []
        store = _STORES[pattern_type]
        for directory in self._tree.children(store):
            resource_type = name_of(directory)
            if resource_type in STORED_TYPES:
                names = self._tree.children(f"{store}/{directory}")
                found += [Pattern(resource_type, name, pattern_type) for name in names]
            else:
                log.warning("ignoring the ACLs below %s/%s: this is not a resource type", store, directory)
        return found

    def _changed(self, events: Sequence[Event]) -> None:
        """Read the changed ACL nodes again. Called on the tree's thread."""
        changed = dict.fromkeys(pattern for event in events if (pattern := _pattern_of(event.path)) is not None)
        if changed:
            self._read(changed)
            self._on_change()

    def _read(self, patterns: Iterable[Pattern]) -> None:
        with self._reading:
            self.index = self.index.changed({pattern: self._entries(pattern) for pattern in patterns})

    def _refuse_hidden_types(self) -> None:
        """Raise ConfigError if the broker's login may not list all ACLs: unseen denials would have no effect."""
        for path in self._tree.hidden:
            if _is_of_stores(path) and _pattern_of(path) is None:
                raise ConfigError(
                    "authorizer.class.name",
                    "AclAuthorizer",
                    f"the broker's login may not read {path} in ZooKeeper: give it the right to read all ACLs",
                )

    def _is_hidden(self, path: str) -> bool:
        return any(path == hidden or path.startswith(f"{hidden}/") for hidden in self._tree.hidden)

    def _entries(self, pattern: Pattern) -> frozenset[Entry]:
        path = _path(pattern)
        if self._is_hidden(path):
            log.error("the broker's login may not read the ACLs at %s, so nobody may use %s", path, _shown(pattern))
            return UNREADABLE
        try:
            return _entries(self._tree.find(path))
        except ValueError as error:
            log.error("the ACLs at %s cannot be read, so nobody may use %s: %s", path, _shown(pattern), error)
            return UNREADABLE

    def find(self, which: Filter) -> list[Binding]:
        """Return the ACLs that a filter selects."""
        return [
            Binding(acls.pattern, entry)
            for acls in self.index.patterns()
            if acls.entries is not UNREADABLE and which.matches_pattern(acls.pattern)
            for entry in acls.entries
            if which.matches_entry(entry)
        ]

    def create(self, acls: Sequence[Binding], done: Created) -> None:
        """Store ACLs, and call `done(errors, None)` with the error of each, None if it is stored. All ACLs of a pattern
        are stored together or not at all."""
        if not acls:
            done([], None)
            return
        by_pattern: dict[Pattern, set[Entry]] = {}
        for pattern, entry in acls:
            by_pattern.setdefault(pattern, set()).add(entry)
        errors: dict[Pattern, KafkaError | None] = {}

        def finished(pattern: Pattern, error: KafkaError | None) -> None:
            errors[pattern] = error
            if len(errors) == len(by_pattern):
                done([errors[binding.pattern] for binding in acls], None)

        for pattern, entries in by_pattern.items():
            _Change(self, pattern, partial(operator.or_, frozenset(entries)), finished).begin()

    def delete(self, filters: Sequence[Filter], done: Deleted) -> None:
        """Delete the ACLs that the filters select. Call `done(deletions, None)` with what each filter has deleted; an
        ACL that several filters select belongs to the first of them.

        A filter that names one pattern, and selects all its ACLs, also deletes ACLs that cannot be read.
        """
        patterns = dict.fromkeys(acls.pattern for acls in self.index.patterns())
        patterns |= dict.fromkeys(pattern for which in filters for pattern in which.patterns())  # may be new
        by_pattern: dict[Pattern, list[int]] = {}
        for pattern in patterns:
            matching = [number for number, which in enumerate(filters) if which.matches_pattern(pattern)]
            if matching and _is_storable(pattern):
                by_pattern[pattern] = matching
        deletions = [Deletion() for _ in filters]
        if not by_pattern:
            done(deletions, None)
            return
        finished: set[Pattern] = set()

        def begin(pattern: Pattern, matching: Sequence[int]) -> None:
            owners: dict[Entry, int] = {}

            def left(before: frozenset[Entry]) -> frozenset[Entry]:
                owners.clear()
                for entry in before:
                    for number in matching:
                        if filters[number].matches_entry(entry):
                            owners[entry] = number
                            break
                return before - owners.keys()

            def deleted(pattern: Pattern, error: KafkaError | None) -> None:
                for entry, number in owners.items():
                    deletions[number].acls[Binding(pattern, entry)] = error
                if error is not None and not owners:
                    for number in matching:
                        deletions[number].error = error
                finished.add(pattern)
                if len(finished) == len(by_pattern):
                    done(deletions, None)

            whole = any(filters[number].patterns() and filters[number].selects_all_entries for number in matching)
            _Change(self, pattern, left, deleted, replaces_unreadable=whole).begin()

        for pattern, matching in by_pattern.items():
            begin(pattern, matching)

    def _notify(self, pattern: Pattern) -> list[Operation]:
        """Return the operation that notifies Apache Kafka's brokers of a change of a pattern's ACLs."""
        if pattern.pattern_type == LITERAL:
            return self._literal_changes.notify(f"{pattern.resource_type}:{pattern.name}".encode())
        value = {
            "version": 1,
            "resourceType": pattern.resource_type,
            "name": pattern.name,
            "patternType": pattern.pattern_type,
        }
        return self._other_changes.notify(paths.to_json(value))


class _Change:
    """A change of the ACLs of one pattern: reads the node, writes it if it has the same version, and otherwise begins
    again. `done(pattern, error)` is called at the end."""

    def __init__(
        self,
        registry: AclRegistry,
        pattern: Pattern,
        change: Callable[[frozenset[Entry]], frozenset[Entry]],
        done: Callable[[Pattern, KafkaError | None], None],
        *,
        replaces_unreadable: bool = False,
    ) -> None:
        self._registry = registry
        self._tree = registry._tree
        self._pattern = pattern
        self._path = _path(pattern)
        self._change = change
        self._done = done
        self._replaces_unreadable = replaces_unreadable

    def begin(self) -> None:
        if _is_storable(self._pattern):
            self._attempt(_ATTEMPTS)
        else:
            why = f"{_path(self._pattern)!r} is not a valid path of a node"
            self._done(self._pattern, KafkaError(Errors.UNKNOWN_SERVER_ERROR, why))

    def _attempt(self, left: int) -> None:
        def read(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            if nodes is None:
                self._finish(error)
            else:
                self._write(nodes[0], left)

        # Not from memory: another program's change, which this one must keep, may not be in memory yet.
        self._tree.read_through([self._path], read)

    def _write(self, node: Node | None, left: int) -> None:
        after: frozenset[Entry] = frozenset()
        try:
            before = _entries(node)
            after = self._change(before)
        except ValueError as error:
            if not self._replaces_unreadable:
                why = f"the ACLs at {self._path} cannot be read, so they are not changed: {error}"
                self._done(self._pattern, KafkaError(Errors.UNKNOWN_SERVER_ERROR, why))
                return
            before = UNREADABLE
        change: Operation
        if before == after:
            self._done(self._pattern, None)
            return
        if node is None:
            change = Create(self._path, encode_entries(after))
        elif after:
            change = Set(self._path, encode_entries(after), node.version)
        else:
            change = Delete(self._path, node.version)

        def written(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, (BadVersion, NodeExists, NoNode)) and left > 1:
                self._attempt(left - 1)
            else:
                self._finish(error)

        self._tree.submit([change, *self._registry._notify(self._pattern)], written)

    def _finish(self, error: TreeError | None) -> None:
        self._done(self._pattern, as_kafka(error, "the ACLs"))


def _is_of_stores(path: str) -> bool:
    """Return True if the path is that of a store's node, or is above or below one."""
    return any(f"{path}/".startswith(f"{store}/") or store.startswith(f"{path}/") for store in _STORES.values())


def _entries(node: Node | None) -> frozenset[Entry]:
    return frozenset() if node is None else decode_entries(node.data)


def _path(pattern: Pattern) -> str:
    return f"{_STORES[pattern.pattern_type]}/{display_name(pattern.resource_type)}/{pattern.name}"


def _is_storable(pattern: Pattern) -> bool:
    """Return True if the pattern's name can be the name of a node, by ZooKeeper's rules (PathUtils)."""
    return pattern.name not in (".", "..") and _NOT_IN_PATHS.search(pattern.name) is None


def _pattern_of(path: str) -> Pattern | None:
    """Return the resource pattern whose ACLs are at a path, None for any other path."""
    for pattern_type, store in _STORES.items():
        if path.startswith(f"{store}/"):
            directory, _, name = path[len(store) + 1 :].partition("/")
            resource_type = name_of(directory)
            if name and "/" not in name and resource_type in STORED_TYPES:
                return Pattern(resource_type, name, pattern_type)
    return None


def _shown(pattern: Pattern) -> str:
    which = "the names that begin with" if pattern.pattern_type == PREFIXED else "the resource"
    return f"{which} {display_name(pattern.resource_type)} {pattern.name}"
