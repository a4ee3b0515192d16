"""Checks whether the entries of an index file are plausible: they ascend, and point into their segment.

Kafka's OffsetIndex and TimeIndex never append an entry that does not ascend, and never one for the first batch.
Anything else is damage: zeros left by a crash, a block of another file, flipped bits.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from kafkapy._ext.cursor cimport load32, load64


cdef Py_ssize_t offsets(const uint8_t *at, Py_ssize_t count, int64_t log_size) noexcept nogil:
    cdef Py_ssize_t slot
    cdef int64_t offset, position, last_offset = -1, last_position = 0
    for slot in range(count):
        offset = <int32_t>load32(at + slot * OFFSET_ENTRY)
        position = <int32_t>load32(at + slot * OFFSET_ENTRY + 4)
        if offset <= last_offset or position <= last_position or position >= log_size:
            return slot
        last_offset = offset
        last_position = position
    return -1


cdef Py_ssize_t times(const uint8_t *at, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t slot
    cdef int64_t stamp, offset, last_stamp = -1, last_offset = 0
    for slot in range(count):
        stamp = <int64_t>load64(at + slot * TIME_ENTRY)
        offset = <int32_t>load32(at + slot * TIME_ENTRY + 8)
        if stamp <= last_stamp or offset < last_offset:
            return slot
        last_stamp = stamp
        last_offset = offset
    return -1


def bad_offset_entry(const uint8_t[::1] data, int64_t log_size):
    """Return the index of the first invalid entry of an offset index of a segment of `log_size` bytes; -1: none."""
    cdef Py_ssize_t count = data.shape[0] // OFFSET_ENTRY, found
    if count == 0:
        return -1
    with nogil:
        found = offsets(&data[0], count, log_size)
    return found


def bad_time_entry(const uint8_t[::1] data):
    """Return the index of the first invalid entry of a time index; -1: none."""
    cdef Py_ssize_t count = data.shape[0] // TIME_ENTRY, found
    if count == 0:
        return -1
    with nogil:
        found = times(&data[0], count)
    return found
