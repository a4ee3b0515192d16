# Writing the records of a batch.

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkapy._ext.cursor cimport Writer


# Encodes records one after the other; `payload` is what follows the header of an uncompressed batch.
@cython.final
cdef class RecordsEncoder:
    cdef Writer writer
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp    # of the first record, or as given
    cdef readonly int64_t max_timestamp     # the largest so far, at least -1
    cdef readonly int32_t last_offset_delta
    cdef bint _base_known
