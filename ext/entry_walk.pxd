# Steps over the entries of a log (batches, messages, wrappers) in plain memory, looking at sizes and magics only.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    ENTRY_OVERHEAD = 12         # offset and length, which the length does not count
    ENTRY_AT_LENGTH = 8
    ENTRY_AT_MAGIC = 16         # the same place in every format
    ENTRY_LEAST = 14            # the smallest length any format has

# What the walk stopped at.
cdef struct Stop:
    int64_t position            # behind the last entry that was passed
    int64_t last                # where that entry begins
    int64_t size                # of the entry there, 0 if not even its magic is in the memory, -1 if its length is wrong
    bint above                  # whether that entry is whole and of a newer format than was asked for

cdef Stop walk(const uint8_t *data, int64_t size, int highest_magic) noexcept nogil
