# Walks over the batches of a segment file, by reading headers only or by checking every byte.
#
# The walk reads the file itself (preadv2) into one window of memory that it slides along, so nothing is mapped:
# an I/O error is an errno here, where a mapping would raise SIGBUS.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


# What one step of the walk found.
cdef enum Step:
    STEP_BATCH          # a batch lies at walk.position, and walk.header holds its first bytes
    STEP_END            # nothing whole follows: the end, or a batch that goes on behind it
    STEP_CORRUPT        # the length at walk.position cannot be that of a batch
    STEP_ERROR          # reading failed, walk.error is the errno (EAGAIN: would have to wait; 0: the file is too short)


cdef struct Walk:
    int fd
    int flags                   # RWF_NOWAIT or 0
    int64_t position            # of the current batch
    int64_t end                 # the walk does not look behind this position
    uint8_t *window             # the memory
    Py_ssize_t room             # its size
    int64_t window_at           # position in the file of its first byte
    Py_ssize_t window_size      # bytes in it
    int error
    # Of the current batch:
    const uint8_t *header       # 61 bytes, or as many as there are before walk.end
    int64_t size                # with the 12 bytes of offset and length
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


# The last five batches that were seen of one producer: which of the collected ones may be overwritten.
cdef struct Recent:
    int64_t producer_id
    int16_t producer_epoch
    uint8_t count               # 0: free
    uint8_t oldest
    int32_t at[5]               # their places in the collected array


# A growing array of plain memory; Python's allocator is not asked, since it is filled without the lock.
cdef struct Heap:
    uint8_t *data
    size_t size
    size_t room
