"""Damage valid inputs of parsers, for the mutation loop."""

from __future__ import annotations

import random
from collections.abc import Sequence

# Values for which checks of lengths and counts are often wrong: the limits of each width, and small negative numbers.
EDGES = {
    1: (0, 1, 2, 6, 7, 63, 64, 127, 128, 254, 255),
    2: (0, 1, 2, 61, 127, 128, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF),
    4: (0, 1, 2, 13, 14, 48, 49, 61, 0xFFFF, 0x10000, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF),
    8: (0, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1),
}
VARINTS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7e",
    b"\x7f",
    b"\x80\x01",
    b"\xff\x7f",
    b"\xff\xff\x03",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80" * 11,
)


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes], start: int = 0) -> bytearray:
    """Change a few places from byte `start` on; `others` are inputs to take pieces from."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5, 8))):
        if len(out) <= start:
            return out
        at = rng.randrange(start, len(out))
        what = rng.randrange(9)
        if what == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at] = rng.choice(EDGES[1])
        elif what == 2:
            width = rng.choice((2, 4, 4, 8))
            out[at : at + width] = rng.choice(EDGES[width]).to_bytes(width, "big")
        elif what == 3:
            varint = rng.choice(VARINTS)
            out[at : at + (len(varint) if rng.random() < 0.5 else 1)] = varint
        elif what == 4:
            del out[at : at + rng.randint(1, 8)]
        elif what == 5:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        elif what == 6:
            piece = out[at : at + rng.randint(1, 64)]
            place = rng.randrange(start, len(out))
            out[place:place] = piece
        elif what == 7:
            other = rng.choice(others)
            begin = rng.randrange(len(other)) if other else 0
            out[at:at] = other[begin : begin + rng.randint(1, 64)]
        else:
            del out[at:]
    return out
