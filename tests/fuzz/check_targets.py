"""Fuzz targets of `kafkapy log verify`: the deep check of segments and of the contents of compressed entries."""

from __future__ import annotations

import random
import struct

from kafkapy._ext.segment_check import Checker, check_packed
from kafkapy.record.batch import payload_of
from kafkapy.record.legacy import iter_entries
from tests.fuzz.legacy_targets import BROKEN, LIMIT, make_entries, seeds, stored
from tests.fuzz.target import Target


def fuzz_segment_check(view: memoryview, rng: random.Random) -> None:
    asked = [sorted(rng.randrange(2 * len(view) + 1) for _ in range(3)) for _ in range(2)]
    checker = Checker(rng.choice((0, 0, 1 << 40)), *(struct.pack("=3q", *one) for one in asked))
    position, size = 0, rng.choice((30, 100, 1 << 20))
    while position < len(view) and not checker.stopped:
        end = checker.feed(view[position : position + size], position)
        assert position <= end <= len(view)
        for at, _, sentence in checker.take_troubles():
            assert sentence
            assert position <= at <= len(view)
        for at, length, _ in struct.iter_unpack("=qqq", checker.take_packed()):
            assert position <= at < at + length <= end
        for fields in struct.iter_unpack("=qqqqqqqiiiihh4x", checker.take_produced()):
            assert fields[0] >= 0
        if end == position:
            if checker.wanted <= size or checker.wanted > len(view) - position:
                break
            size = checker.wanted
        position = end
    assert checker.next_offset >= checker.base_offset
    assert len(checker.at_positions()) == 3 * 40
    assert len(checker.at_offsets()) == 3 * 48
    assert len(checker.take_epochs()) % 24 == 0


def fuzz_packed(view: memoryview, rng: random.Random) -> None:
    for header in iter_entries(view):
        entry = view[header.position : header.next_position]
        if header.codec:
            count, wrong = check_packed(entry, payload_of(view, header, LIMIT))
            assert wrong is None or wrong
            assert count >= -(1 << 31)


def targets() -> list[Target]:
    """Return all targets of this layer."""
    corpus = [*stored(), *seeds()]
    return [
        Target("segment-check", corpus, fuzz_segment_check, (), make_entries),
        Target("packed-check", corpus, fuzz_packed, BROKEN, make_entries),
    ]
