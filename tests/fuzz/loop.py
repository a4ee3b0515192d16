"""The mutation loop. Every input follows from (seed, target, number), so that a failure can be repeated alone."""

from __future__ import annotations

import ctypes
import random
import zlib

from tests.fuzz import (
    byte_targets,
    check_targets,
    cleaner_targets,
    column_targets,
    coordinator_targets,
    legacy_targets,
    offset_targets,
    original_targets,
    row_targets,
    sasl_targets,
    table_targets,
    wire_targets,
)
from tests.fuzz.target import Target


class Failure(Exception):
    """An input made a parser break its rules."""


def all_targets() -> list[Target]:
    """Return the targets of all parsers of bytes from outside. Add the `targets()` of a new parser's module here."""
    layers = (
        byte_targets,
        legacy_targets,
        column_targets,
        check_targets,
        cleaner_targets,
        row_targets,
        offset_targets,
        coordinator_targets,
        table_targets,
        wire_targets,
        original_targets,
        sasl_targets,
    )
    return [target for layer in layers for target in layer.targets()]


# AddressSanitizer's function, if AddressSanitizer is loaded.
_poison = getattr(ctypes.CDLL(None), "__asan_poison_memory_region", None)


def exact(data: bytes) -> memoryview:
    """Return the input in writable memory; nothing may be read behind its end.

    Python keeps a zero byte behind the contents of bytes and bytearrays, which would hide from AddressSanitizer that
    one byte too many is read. So this byte is marked as out of bounds too.
    """
    memory = bytearray(data)
    if _poison is not None and data:
        end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + len(data)
        _poison(ctypes.c_void_p(end), ctypes.c_size_t(1))
    return memoryview(memory)


def run_one(target: Target, seed: int, number: int) -> bool:
    """Feed one input; return True if it was accepted. Raise Failure if the parser breaks its rules."""
    rng = random.Random(seed << 40 ^ zlib.crc32(target.name.encode()) << 8 ^ number * 0x9E3779B97F4A7C15)
    data = bytes(target.make(rng, target.corpus))
    view = exact(data)
    try:
        target.run(view, rng)
    except target.refusals:
        return False
    except BaseException as error:
        raise Failure(
            f"{target.name}, seed {seed}, input {number}: {error!r} for {len(data)} bytes {data[:4000].hex()}"
        ) from error
    return True
