"""The entries of a log of any format: reading headers, checking CRCs, and iterating.

An entry is the unit that has an offset and a length of its own in a log: a batch of format 2, a message of format 0 or
1, or a compressed wrapper of such messages. The magic is at the same position in all formats, so a log may contain any
mixture.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int32_t, uint32_t

from kafkapy._ext.batch cimport (
    AT_ATTRIBUTES, AT_CRC, AT_LENGTH, AT_MAGIC, HEADER_SIZE, LENGTH_END, LOOK_BAD_MAGIC, LOOK_BAD_SIZE,
    LOOK_PARTIAL, LOOK_WHOLE, Look, header_at, look,
)
from kafkapy._ext.crc32 cimport crc_of as crc32_of
from kafkapy._ext.crc32c cimport crc_of as crc32c_of
from kafkapy._ext.cursor cimport load32
from kafkapy._ext.legacy cimport MSG_CRC, MSG_FIELDS_V0, MSG_FIELDS_V1, MSG_MAGIC, least_size, message_header_at

from kafkapy._ext.batch import CorruptBatch, UnsupportedMagic

cdef enum:
    # From this size on, checksums are computed without the GIL.
    RELEASE_FROM = 65536


cdef Look look_entry(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil:
    cdef int32_t length
    cdef Look seen = look(at, left, size)
    if seen != LOOK_BAD_MAGIC or at[AT_MAGIC] > 1:
        return seen
    length = <int32_t>load32(at + AT_LENGTH)
    if length < least_size(at[AT_MAGIC]):
        return LOOK_BAD_SIZE
    return LOOK_WHOLE if size[0] <= left else LOOK_PARTIAL


cdef uint32_t _computed(const uint8_t *at, int64_t size) noexcept nogil:
    if at[AT_MAGIC] == 2:
        return crc32c_of(0, at + AT_ATTRIBUTES, size - AT_ATTRIBUTES)
    return crc32_of(0, at + MSG_MAGIC, size - MSG_MAGIC)


cdef uint32_t _stored(const uint8_t *at) noexcept nogil:
    return load32(at + (AT_CRC if at[AT_MAGIC] == 2 else MSG_CRC))


cdef bint entry_crc_matches(const uint8_t *at, int64_t size) noexcept nogil:
    return _stored(at) == _computed(at, size)


cdef Py_ssize_t _header_size(int magic) noexcept nogil:
    if magic == 2:
        return HEADER_SIZE
    return MSG_FIELDS_V1 if magic else MSG_FIELDS_V0


cdef object _header(const uint8_t *at, Py_ssize_t position):
    if at[AT_MAGIC] == 2:
        return header_at(at, position)
    return message_header_at(at, position)


cdef str _why(Look seen, const uint8_t *at, Py_ssize_t left, int64_t size, Py_ssize_t position):
    if seen == LOOK_BAD_SIZE:
        return f"the entry at byte {position} has a length of {size - LENGTH_END}, too small for an entry"
    if seen == LOOK_BAD_MAGIC:
        return f"the entry at byte {position} has magic {<int8_t>at[AT_MAGIC]}, not 0, 1 or 2"
    if left <= AT_MAGIC:
        return f"only {left} bytes at byte {position}, too few for an entry"
    return f"the entry at byte {position} has {size} bytes, but only {left} are there"


cdef str _wrong_crc(const uint8_t *at, int64_t size, Py_ssize_t position):
    return f"the entry at byte {position} has the CRC {_stored(at)}, but the CRC of its bytes is {_computed(at, size)}"


cdef object _refuse(Look seen, const uint8_t *at, Py_ssize_t left, int64_t size, Py_ssize_t position):
    if seen == LOOK_BAD_MAGIC:
        raise UnsupportedMagic(<int8_t>at[AT_MAGIC], position)
    raise CorruptBatch(_why(seen, at, left, size, position))


cdef int _hold(object buffer, Py_ssize_t position, Py_buffer *held) except -1:
    PyObject_GetBuffer(buffer, held, PyBUF_SIMPLE)
    if position < 0 or position > held.len:
        there = held.len
        PyBuffer_Release(held)
        raise CorruptBatch(f"byte {position} is outside of the {there} bytes")
    return 0


def read_entry(buffer, Py_ssize_t position=0):
    """Return the header at `position`, a BatchHeader or MessageHeader; the rest of the entry need not be there.

    Raises CorruptBatch if the header is incomplete or its length is too small, UnsupportedMagic for an unknown format.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef Py_ssize_t left
    cdef int64_t size = 0
    cdef Look seen
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        left = held.len - position
        seen = look_entry(at, left, &size)
        if seen == LOOK_WHOLE or (seen == LOOK_PARTIAL and left > AT_MAGIC and left >= _header_size(at[AT_MAGIC])):
            return _header(at, position)
        if seen == LOOK_PARTIAL:
            raise CorruptBatch(f"only {left} bytes at byte {position}, too few for the header of an entry")
        return _refuse(seen, at, left, size, position)
    finally:
        PyBuffer_Release(&held)


def next_entry(buffer, Py_ssize_t position=0):
    """Return the header of the entry at `position`, or None if the entry is incomplete or there are no bytes.

    Raises CorruptBatch or UnsupportedMagic for bytes that cannot begin an entry. Does not check the CRC.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef int64_t size = 0
    cdef Look seen
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        seen = look_entry(at, held.len - position, &size)
        if seen == LOOK_WHOLE:
            return _header(at, position)
        if seen == LOOK_PARTIAL:
            return None
        return _refuse(seen, at, held.len - position, size, position)
    finally:
        PyBuffer_Release(&held)


def iter_entries(buffer, Py_ssize_t start=0):
    """Yield the header of each entry, up to an incomplete entry."""
    while True:
        header = next_entry(buffer, start)
        if header is None:
            return
        yield header
        start = header.next_position


def check_entry(buffer, Py_ssize_t position=0):
    """Return the header of an entry that must be complete with a correct CRC. Raises CorruptBatch."""
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef int64_t size = 0
    cdef Look seen
    cdef bint right
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        seen = look_entry(at, held.len - position, &size)
        if seen != LOOK_WHOLE:
            return _refuse(seen, at, held.len - position, size, position)
        if size < RELEASE_FROM:
            right = entry_crc_matches(at, size)
        else:
            with nogil:
                right = entry_crc_matches(at, size)
        if not right:
            raise CorruptBatch(_wrong_crc(at, size, position))
        return _header(at, position)
    finally:
        PyBuffer_Release(&held)
