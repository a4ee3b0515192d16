# What a validated batch or message set tells the log: the fields it needs to append it, and the memory to write.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t


@cython.final
@cython.freelist(64)
cdef class ValidatedBatch:
    cdef readonly object data                       # memoryview of all of it, writable: the input's or a rebuilt one's
    cdef readonly int64_t size                      # bytes of `data`
    cdef readonly int magic                         # of `data`; 0, 1: a message set, 2: one batch
    cdef readonly int32_t count                     # records
    cdef readonly int32_t last_offset_delta         # count - 1
    cdef readonly int64_t max_timestamp             # as now stored in the batch
    cdef readonly int32_t offset_delta_of_max_timestamp     # for the time index: the last one; -1 without timestamps
    cdef readonly int64_t producer_id               # -1: none
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence             # -1: none
    cdef readonly int32_t last_sequence             # -1: none
    cdef readonly bint is_transactional
    cdef readonly bint is_control
    cdef readonly int timestamp_type                # 0 create time, 1 append time
    cdef readonly int codec                         # as now stored
    cdef readonly bint rebuilt                      # whether `data` is new memory
    # A compressed set of format 0 has its messages' offsets inside, so it is made only when they are known:
    # remake(base offset) gives its bytes. None: `data` is there. Until then `data` is empty and `size` 0.
    cdef readonly object remake
