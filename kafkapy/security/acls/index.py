"""An immutable index of ACLs, which finds those that count for a resource without looking at all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kafkapy.security.acls.bindings import ALL, DENY, EVERYBODY, LITERAL, PREFIXED, WILDCARD, Binding, Entry, Pattern

# The ACLs of a pattern whose stored ACLs cannot be read: they deny everything to everybody.
UNREADABLE: Final = frozenset({Entry(EVERYBODY, WILDCARD, ALL, DENY)})


class PatternAcls:
    """The ACLs of one resource pattern, by principal."""

    __slots__ = ("_by_principal", "entries", "pattern")

    def __init__(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        self.pattern = pattern
        self.entries = entries
        self._by_principal: dict[str, tuple[Entry, ...]] = {}
        for entry in entries:
            self._by_principal[entry.principal] = (*self._by_principal.get(entry.principal, ()), entry)

    def of(self, principal: str) -> tuple[Entry, ...]:
        """Return the ACLs that name this principal."""
        return self._by_principal.get(principal, ())


class _OfType(NamedTuple):
    """The ACLs of one resource type, by pattern type and name; `lengths` are those of the prefixes."""

    literal: Mapping[str, PatternAcls]
    prefixed: Mapping[str, PatternAcls]
    lengths: tuple[int, ...]


_NOTHING = _OfType({}, {}, ())

_Key = tuple[str, str, Entry]  # resource type, pattern type, entry


class AclIndex:
    """An immutable set of ACLs: `changed` returns a new index. `answers` is a cache of answers that the rules have
    computed from this set."""

    __slots__ = ("_names", "_types", "answers")

    def __init__(self) -> None:
        self._types: dict[str, _OfType] = {}
        self._names: dict[_Key, frozenset[str]] = {}
        self.answers: dict[tuple[Any, ...], bool] = {}

    def matching(self, resource_type: str, name: str) -> list[PatternAcls]:
        """Return the ACLs of all patterns that match a resource: its own name, `*` and prefixes of its name."""
        literal, prefixed, lengths = self._types.get(resource_type, _NOTHING)
        found = []
        for wanted in (name, WILDCARD) if name != WILDCARD else (name,):
            acls = literal.get(wanted)
            if acls is not None:
                found.append(acls)
        longest = len(name)
        for length in lengths:
            if length > longest:
                break
            acls = prefixed.get(name[:length])
            if acls is not None:
                found.append(acls)
        return found

    def names(self, resource_type: str, pattern_type: str, entry: Entry) -> frozenset[str]:
        """Return the names of the patterns of these types that have exactly this entry."""
        return self._names.get((resource_type, pattern_type, entry), frozenset())

    def entries(self, pattern: Pattern) -> frozenset[Entry]:
        """Return the ACLs of exactly this pattern."""
        of_type = self._types.get(pattern.resource_type, _NOTHING)
        acls = (of_type.literal if pattern.pattern_type == LITERAL else of_type.prefixed).get(pattern.name)
        return frozenset() if acls is None else acls.entries

    def patterns(self) -> Iterator[PatternAcls]:
        """Iterate over the ACLs by pattern."""
        for of_type in self._types.values():
            yield from of_type.literal.values()
            yield from of_type.prefixed.values()

    def __iter__(self) -> Iterator[Binding]:
        for acls in self.patterns():
            for entry in acls.entries:
                yield Binding(acls.pattern, entry)

    def changed(self, changes: Mapping[Pattern, frozenset[Entry]]) -> AclIndex:
        """Return an index in which the patterns in `changes` have these ACLs, and no others."""
        new = AclIndex()
        new._types = dict(self._types)
        by_type: dict[str, list[Pattern]] = {}
        for pattern in changes:
            by_type.setdefault(pattern.resource_type, []).append(pattern)
        for resource_type, patterns in by_type.items():
            new._types[resource_type] = _changed(self._types.get(resource_type, _NOTHING), patterns, changes)
        new._names = self._changed_names(changes)
        return new

    def _changed_names(self, changes: Mapping[Pattern, frozenset[Entry]]) -> dict[_Key, frozenset[str]]:
        added: dict[_Key, set[str]] = {}
        removed: dict[_Key, set[str]] = {}
        for pattern, entries in changes.items():
            before = self.entries(pattern)
            for into, which in ((added, entries - before), (removed, before - entries)):
                for entry in which:
                    key = (pattern.resource_type, pattern.pattern_type, entry)
                    into.setdefault(key, set()).add(pattern.name)
        names = dict(self._names)
        for key in (*added, *(key for key in removed if key not in added)):
            left = (names.get(key, frozenset()) | added.get(key, frozenset())) - removed.get(key, frozenset())
            if left:
                names[key] = left
            else:
                names.pop(key, None)
        return names


def index_of(bindings: Iterable[Binding]) -> AclIndex:
    """Return the index of these ACLs."""
    by_pattern: dict[Pattern, set[Entry]] = {}
    for pattern, entry in bindings:
        by_pattern.setdefault(pattern, set()).add(entry)
    return AclIndex().changed({pattern: frozenset(entries) for pattern, entries in by_pattern.items()})


def _changed(before: _OfType, patterns: list[Pattern], changes: Mapping[Pattern, frozenset[Entry]]) -> _OfType:
    literal, prefixed, lengths = before
    for pattern_type in {pattern.pattern_type for pattern in patterns}:
        acls = dict(before.literal if pattern_type == LITERAL else before.prefixed)
        for pattern in patterns:
            if pattern.pattern_type != pattern_type:
                continue
            if changes[pattern]:
                acls[pattern.name] = PatternAcls(pattern, changes[pattern])
            else:
                acls.pop(pattern.name, None)
        if pattern_type == PREFIXED:
            prefixed, lengths = acls, tuple(sorted(set(map(len, acls))))
        else:
            literal = acls
    return _OfType(literal, prefixed, lengths)
