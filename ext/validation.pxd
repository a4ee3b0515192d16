# A validated batch or message set: the fields that the log needs to append it, and the memory to write. And the rules
# for batches of format 2.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t


@cython.final
@cython.freelist(64)
cdef class ValidatedBatch:
    cdef readonly object data                       # writable memoryview of the batch: the input's memory or new
    cdef readonly int64_t size                      # bytes of `data`
    cdef readonly int magic                         # 0, 1: `data` is a message set, 2: one batch
    cdef readonly int32_t count                     # records
    cdef readonly int32_t last_offset_delta         # count - 1
    cdef readonly int64_t max_timestamp             # as stored in `data`
    cdef readonly int32_t offset_delta_of_max_timestamp     # for the time index: the last record; -1 without timestamps
    cdef readonly int64_t producer_id               # -1: none
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence             # -1: none
    cdef readonly int32_t last_sequence             # -1: none
    cdef readonly bint is_transactional
    cdef readonly bint is_control
    cdef readonly int timestamp_type                # 0 create time, 1 append time
    cdef readonly int codec                         # as stored in `data`
    cdef readonly bint rebuilt                      # True if `data` is new memory
    # A compressed set of format 0 contains its messages' offsets, so it is built when they are known:
    # remake(base offset) returns its bytes; before that, `data` is empty and `size` is 0. None: `data` is complete.
    cdef readonly object remake


@cython.final
cdef class BatchRules:
    cdef object decompress                          # (codec, view) -> iterable of bytes
    cdef object compress                            # (codec, bytes) -> bytes
    cdef int timestamp_type                         # 0 create time, 1 append time
    cdef int64_t before_max_ms                      # how far a timestamp may be from now
    cdef int64_t after_max_ms
    cdef bint compact                               # every record needs a key
    cdef int target_codec                           # -1: the producer's
    cdef int64_t max_message_bytes                  # -1: no limit
    cdef bint plain_only                            # refuse transactional and idempotent batches
