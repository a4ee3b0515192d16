# Walks over the entries of a log (batches, messages, wrappers) in plain memory, reading only sizes and magics.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    ENTRY_OVERHEAD = 12         # offset and length, which the length does not count
    ENTRY_AT_LENGTH = 8
    ENTRY_AT_MAGIC = 16         # at the same position in every format
    ENTRY_LEAST = 14            # the smallest valid length of any format

# Where the walk stopped.
cdef struct Stop:
    int64_t position            # end of the last entry walked over
    int64_t last                # start of that entry
    int64_t size                # of the entry at `position`; 0: its magic is not in the memory; -1: invalid length
    bint above                  # True if the entry at `position` is complete and its magic is above `highest_magic`

cdef Stop walk(const uint8_t *data, int64_t size, int highest_magic) noexcept nogil
