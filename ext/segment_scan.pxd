# Walks over the batches of a segment file, reading only headers or checking every byte.
#
# The walk reads the file (preadv2) into a window of memory that moves over it. The file is not mapped: an I/O error is
# an errno here; with a mapping it would be a SIGBUS.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


# The result of one step of the walk.
cdef enum Step:
    STEP_BATCH          # a batch begins at walk.position; walk.header has its first bytes
    STEP_END            # no complete batch follows: the end, or a batch that extends beyond it
    STEP_CORRUPT        # the length at walk.position is not valid for a batch
    STEP_ERROR          # reading failed: walk.error is the errno (EAGAIN: not in memory; 0: the file is too short)


cdef struct Walk:
    int fd
    int flags                   # RWF_NOWAIT or 0
    int64_t position            # of the current batch
    int64_t end                 # nothing after this position is read
    uint8_t *window             # the memory
    Py_ssize_t room             # capacity of the window
    int64_t window_at           # position in the file of the window's first byte
    Py_ssize_t window_size      # bytes in the window
    int error
    # Of the current batch:
    const uint8_t *header       # 61 bytes, or fewer if walk.end is before that
    int64_t size                # including the 12 bytes of offset and length
    int64_t base_offset         # magic 0 and 1: the same as last_offset
    int64_t last_offset
    int64_t max_timestamp       # -1 for magic 0
    int magic


# One batch of an idempotent or transactional producer, as Python's struct "=qqqqqiiihh" reads it.
cdef struct ProducerBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t producer_id
    int64_t max_timestamp
    int64_t position
    int32_t base_sequence
    int32_t last_sequence
    int32_t size
    int16_t producer_epoch
    int16_t attributes


# The last five batches of one producer: which of the collected batches may be overwritten.
cdef struct Recent:
    int64_t producer_id
    int16_t producer_epoch
    uint8_t count               # 0: this slot is free
    uint8_t oldest              # index in `at` of the oldest of the five
    int32_t at[5]               # their indexes in the collected array


# A growing array in plain memory; not allocated by Python, since it is filled without the GIL.
cdef struct Heap:
    uint8_t *data
    size_t size
    size_t room
