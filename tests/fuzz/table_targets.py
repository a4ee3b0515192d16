"""Fuzz targets of the offsets in memory: names and the table, each compared with a model of dicts.

An input is a list of steps, three bytes each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from kafkapy._ext.name_pool import Names
from kafkapy._ext.offset_commit import encode_key, encode_value
from kafkapy._ext.offset_table import OffsetTable
from tests.fuzz.target import Target

Key = tuple[str, str, int]
Commit = tuple[int, int, str, int, int]

TEXTS = ("", "a", "b", "\0", "ä" * 3, "long " * 200, "x" * 32767)


def steps(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return new random steps: mutating old ones would have no advantage."""
    return rng.randbytes(3 * rng.randint(1, 200))


def taken(view: memoryview) -> Iterator[tuple[int, int, int]]:
    return zip(view[::3], view[1::3], view[2::3], strict=True)


def fuzz_names(view: memoryview, rng: random.Random) -> None:
    names, uses = Names(), Counter[bytes]()
    numbers: dict[bytes, int] = {}
    for what, which, length in taken(view):
        name = (TEXTS[which % len(TEXTS)] + chr(length)).encode()
        if what & 1:
            number = names.take(name)
            assert numbers.setdefault(name, number) == number
            uses[name] += 1
        elif uses[name]:
            names.release(name)
            uses[name] -= 1
            if not uses[name]:
                del numbers[name]
        assert names.find(name) == numbers.get(name, -1)
    assert len(names) == len(numbers) == len(set(numbers.values()))
    assert all(names.find(name) == number for name, number in numbers.items())


class Model:
    """A model of an OffsetTable in dicts. `orders`: the append that a committed or staged offset belongs to."""

    def __init__(self) -> None:
        self.committed: dict[Key, tuple[int, Commit]] = {}
        self.staged: dict[int, dict[Key, tuple[int, Commit]]] = {}
        self.order = 0

    def apply(self, records: list[tuple[Key, Commit | None]], producer: int) -> None:
        self.order += 1
        if producer < 0:
            place = self.committed
        elif any(commit is not None for _, commit in records):
            place = self.staged.setdefault(producer, {})
        else:
            place = self.staged.get(producer, {})
        for key, commit in records:
            if commit is None:
                place.pop(key, None)
            else:
                place[key] = self.order, commit

    def end(self, producer: int, committed: bool) -> None:
        for key, one in self.staged.pop(producer, {}).items():
            if committed and self.committed.get(key, (0,))[0] <= one[0]:
                self.committed[key] = one

    def unstage(self, key: Key) -> None:
        for place in self.staged.values():
            place.pop(key, None)


def fuzz_table(view: memoryview, rng: random.Random) -> None:
    table, model = OffsetTable(), Model()
    for what, which, number in taken(view):
        key = TEXTS[which % 5], TEXTS[which // 5 % len(TEXTS)], (0, 1, -1, 2**31 - 1)[which // 64]
        producer = number % 4 - 1
        if what < 120:
            commit = (number, -1, TEXTS[what % 7], rng.choice((0, -(2**63), 2**63 - 1)), -1)
            if what & 8:
                commit = (*commit[:4], rng.choice((0, 5, 2**63 - 1)))
            records: list[tuple[Key, Commit | None]] = [(key, commit), (("a", "b", number), commit)]
            if what & 16:
                records.append((key, None))
            model.apply(records, producer)
            table.apply(
                [(encode_key(*at), None if value is None else encode_value(*value)) for at, value in records], producer
            )
        elif what < 150:
            model.apply([(key, None)], producer)
            table.apply([(encode_key(*key), None)], producer)
        elif what < 190:
            table.end_transaction(producer, bool(what & 1))
            model.end(producer, bool(what & 1))
        elif what < 220:
            table.unstage(*key)
            model.unstage(key)
        elif what < 240:
            assert table.remove(*key) == (model.committed.pop(key, None) is not None)
        else:
            found, _ = table.expired(key[0], 2**63 - 1, 0, number, -1, rng.randint(0, 5), rng.randint(0, 5))
            assert all((key[0], *one) in model.committed for one in found)
    _check(table, model)


def _check(table: OffsetTable, model: Model) -> None:
    assert len(table) == len(model.committed)
    assert all(table.get(*key) == commit for key, (_, commit) in model.committed.items())
    listed = {(group, topic, at): commit for group in table.groups() for topic, at, commit in table.of_group(group)}
    assert listed == {key: commit for key, (_, commit) in model.committed.items()}
    assert sorted(table.staged()) == sorted((who, *key) for who, place in model.staged.items() for key in place)
    for topic in TEXTS:
        wanted = [key for place in (model.committed, *model.staged.values()) for key in place if key[1] == topic]
        assert sorted(table.of_topic(topic)[0]) == sorted((group, at) for group, _, at in wanted)
    assert table.memory >= 0


def targets() -> list[Target]:
    return [
        Target("names", (b"",), fuzz_names, (), steps),
        Target("offset_table", (b"",), fuzz_table, (), steps),
    ]
