# The records of a batch of format 2 one after the other, each made only when it is asked for.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._ext.records cimport Walk


cdef class LazyRecords:
    cdef Py_buffer held         # the decompressed records
    cdef bint holds             # whether `held` is to be given back
    cdef Walk walk              # only what the header says about timestamps
    cdef int64_t base_offset
    cdef int32_t index          # of the next record
    cdef int32_t count
    cdef const uint8_t *at      # where it begins
    cdef const uint8_t *end
