# Iterates over the records of a batch of format 2, decoding each only when the caller asks for it.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._ext.records cimport Walk


cdef class LazyRecords:
    cdef Py_buffer held         # the decompressed records
    cdef bint holds             # True if `held` has to be released
    cdef Walk walk              # only its fields about timestamps are used
    cdef int64_t base_offset
    cdef int32_t index          # of the next record
    cdef int32_t count
    cdef const uint8_t *at      # start of the next record
    cdef const uint8_t *end
