"""Fuzz target of the log cleaner, which reads whole segments of entries of any format in two passes."""

from __future__ import annotations

import random

from kafkapy._ext.compactor import Compactor
from kafkapy._ext.cursor import Writer
from kafkapy._ext.decided_txns import DecidedTransactions
from kafkapy._ext.key_index import KeyIndex
from kafkapy._ext.keymap import KeyMap
from kafkapy.log.cleaner.codecs import pack, unpack
from kafkapy.record.batch import build, records_of
from kafkapy.record.legacy import iter_entries
from tests.fuzz.legacy_targets import LIMIT, NOW, make_entries, seeds, stored
from tests.fuzz.target import Target

END = 1 << 62

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def fuzz_cleaning(view: memoryview, rng: random.Random) -> None:
    """The cleaned data hold no new record, and cleaning them again changes nothing."""
    aborted = [(rng.randrange(4), rng.randrange(20), 1 << 60, 0) for _ in range(rng.randrange(3))]
    left = cleaned(view, aborted, rng.choice((0, 3)), rng.choice((NOW, -1, 1 << 62)))
    kept = list(entries_of(left))
    there = set(entries_of(view))
    assert {entry for entry in kept if entry[1] is not None} <= there
    again = cleaned(memoryview(left), [], 0, -1)
    assert {entry for entry in entries_of(again) if entry[1] is not None} <= set(kept)


def entries_of(data: bytes | memoryview) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for header in iter_entries(data)
        for record in records_of(data, header, LIMIT)
    ]


def cleaned(view: memoryview, aborted: list[tuple[int, int, int, int]], start: int, now: int) -> bytes:
    keys, payload = KeyMap(240), Writer(16)
    index = KeyIndex(keys, DecidedTransactions(aborted), start)
    index.begin_segment(0, END)
    wants = index.feed(view, 0)
    while wants:
        unpack(view, index.position, payload, LIMIT)
        wants = index.feed(view, index.position, payload)
    compactor = Compactor(
        keys, DecidedTransactions(aborted), mapped_to=index.latest_offset, now=now, delete_retention=1000
    )
    compactor.begin_segment(0, END, now > 0, [(1, 4, 0), (2, -1, 0)])
    wants = compactor.feed(view, 0)
    while wants:
        if len(compactor.unpacked):
            compactor.packed(view, pack(view, compactor.position, compactor.unpacked))
            wants = compactor.feed(view, compactor.position)
        else:
            unpack(view, compactor.position, payload, LIMIT)
            wants = compactor.feed(view, compactor.position, payload)
    return compactor.out.getvalue()


def transactional() -> bytes:
    """Return two transactions with tombstones, one of them aborted, and their markers."""
    rows: list[Row] = [(NOW, b"a", b"1", []), (NOW, b"b", None, [("h", b"x")])]
    parts = []
    for number, (kind, codec) in enumerate(((1, 0), (0, 3))):
        base, producer = 3 * number, number + 1
        parts.append(
            build(
                rows,
                base_offset=base,
                base_sequence=0,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                transactional=True,
            )
        )
        marker: Row = (NOW, b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\0", [])
        parts.append(
            build(
                [marker],
                base_offset=base + 2,
                producer_id=producer,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )
    return b"".join(parts)


def targets() -> list[Target]:
    """Return all targets of this layer."""
    return [Target("cleaning", [transactional(), *stored(), *seeds()], fuzz_cleaning, (ValueError,), make_entries)]
