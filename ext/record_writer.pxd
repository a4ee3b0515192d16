# Writes the records of a batch of format 2.

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkapy._ext.cursor cimport Writer


# Appends records; `payload` returns what follows the header of an uncompressed batch.
@cython.final
cdef class RecordsEncoder:
    cdef Writer writer
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp    # as passed in, or the first record's
    cdef readonly int64_t max_timestamp     # the largest so far, at least -1
    cdef readonly int32_t last_offset_delta
    cdef bint _base_known
