"""The TLS records in received bytes, compared with a plain reference."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.tls_records import whole_records

MOST, LONGEST = 100, 120


def reference(data: bytes) -> tuple[int, int]:
    position = count = 0
    while True:
        head = data[position : position + 5]
        if head[:1] and head[0] not in (20, 21, 22, 23, 24):
            return position, -1
        if head[1:2] and head[1] != 3:
            return position, -1
        if len(head) < 5:
            return position, count
        length = int.from_bytes(head[3:], "big")
        if length > LONGEST:
            return position, -1
        end = position + 5 + length
        if end > len(data) or (count and end > MOST):
            return position, count
        position, count = end, count + 1


records = st.builds(
    lambda kind, size: struct.pack(">BBBH", kind, 3, 3, size) + bytes(size),
    st.integers(20, 24),
    st.one_of(st.integers(0, 30), st.integers(0, LONGEST + 1)),
)


@given(st.lists(st.one_of(records, records, records, st.binary(max_size=6)), max_size=6), st.integers(0, 300))
def test_records_are_found_as_by_the_reference(parts: list[bytes], cut: int) -> None:
    data = b"".join(parts)[: cut or None]
    assert whole_records(data, MOST, LONGEST) == reference(data)
    assert whole_records(memoryview(data), MOST, LONGEST) == reference(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (0, 0)),
        (b"\x17", (0, 0)),
        (b"\x17\3\3\0", (0, 0)),
        (b"\x17\3\3\0\0", (5, 1)),
        (b"\x17\3\3\0\1", (0, 0)),
        (b"\x17\3\3\0\1x\x16", (6, 1)),
        (b"\x17\3\3\0\1x\x13", (6, -1)),
        (b"\x17\4", (0, -1)),
        (b"\x17\3\3\xff\xff", (0, -1)),
        (b"GET /", (0, -1)),
    ],
)
def test_examples(data: bytes, expected: tuple[int, int]) -> None:
    assert whole_records(data, MOST, LONGEST) == expected
