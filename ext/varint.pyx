"""Variable-length integers of the Kafka protocol (Kafka's ByteUtils; KIP-98 zig-zag, KIP-482 unsigned).

The work is done by the inline functions of varint.pxd, which other extension modules cimport; the functions
here show the same to Python, for tests and tools. Encoders take an int and give bytes (OverflowError when it
does not fit); decoders take any buffer and a position and give (value, bytes taken).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


class BadVarint(ValueError):
    """A variable-length number that is cut short, or that goes on after 5 (32 bits) or 10 (64 bits) bytes."""


cdef int _refuse(int taken, Py_ssize_t position, Py_ssize_t there, int longest) except -1:
    if taken == VARINT_SHORT:
        raise BadVarint(f"a varint at byte {position} is cut short: the data ends after {there} of its bytes")
    raise BadVarint(f"a varint at byte {position} goes on after {longest} bytes")


def encode_uvarint(uint32_t value) -> bytes:
    """Encode an unsigned 32-bit number: 1 to 5 bytes."""
    cdef uint8_t room[VARINT_MAX]
    cdef int size = put_uvarint32(room, value)
    return (<const char *>room)[:size]


def encode_uvarlong(uint64_t value) -> bytes:
    """Encode an unsigned 64-bit number: 1 to 10 bytes."""
    cdef uint8_t room[VARLONG_MAX]
    cdef int size = put_uvarint64(room, value)
    return (<const char *>room)[:size]


def encode_varint(int32_t value) -> bytes:
    """Encode a signed 32-bit number, zig-zag: 1 to 5 bytes."""
    cdef uint8_t room[VARINT_MAX]
    cdef int size = put_uvarint32(room, zigzag32(value))
    return (<const char *>room)[:size]


def encode_varlong(int64_t value) -> bytes:
    """Encode a signed 64-bit number, zig-zag: 1 to 10 bytes."""
    cdef uint8_t room[VARLONG_MAX]
    cdef int size = put_uvarint64(room, zigzag64(value))
    return (<const char *>room)[:size]


def size_of(int64_t value) -> int:
    """Say how many bytes a signed number takes when it is zig-zag encoded."""
    return size_of_varint(value)


cdef (uint64_t, int) _decode(object buffer, Py_ssize_t position, int longest) except *:
    cdef Py_buffer held
    cdef uint32_t narrow = 0
    cdef uint64_t raw = 0
    cdef int taken
    cdef const uint8_t *start
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if position < 0 or position > held.len:
            raise BadVarint(f"position {position} is outside of the {held.len} bytes")
        start = <const uint8_t *>held.buf
        if longest == VARINT_MAX:
            taken = get_uvarint32(start + position, start + held.len, &narrow)
            raw = narrow
        else:
            taken = get_uvarint64(start + position, start + held.len, &raw)
        if taken <= 0:
            _refuse(taken, position, held.len - position, longest)
    finally:
        PyBuffer_Release(&held)
    return raw, taken


def decode_uvarint(buffer, Py_ssize_t position=0) -> tuple[int, int]:
    """Decode an unsigned 32-bit number: (value, bytes taken). Raises BadVarint."""
    return _decode(buffer, position, VARINT_MAX)


def decode_uvarlong(buffer, Py_ssize_t position=0) -> tuple[int, int]:
    """Decode an unsigned 64-bit number: (value, bytes taken). Raises BadVarint."""
    return _decode(buffer, position, VARLONG_MAX)


def decode_varint(buffer, Py_ssize_t position=0) -> tuple[int, int]:
    """Decode a zig-zag 32-bit number: (value, bytes taken). Raises BadVarint."""
    cdef uint64_t raw
    cdef int taken
    raw, taken = _decode(buffer, position, VARINT_MAX)
    return unzigzag32(<uint32_t>raw), taken


def decode_varlong(buffer, Py_ssize_t position=0) -> tuple[int, int]:
    """Decode a zig-zag 64-bit number: (value, bytes taken). Raises BadVarint."""
    cdef uint64_t raw
    cdef int taken
    raw, taken = _decode(buffer, position, VARLONG_MAX)
    return unzigzag64(raw), taken
