# Rows of Arrow columns become the records of batches (format 2), one open batch a partition.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    MOST_HELD = 20              # buffers: three of each column of bytes and at most two of the others are 19

# A column of bytes as it lies in memory. Row i of the batch is entry `first + i` of the arrays.
ctypedef struct ByteInput:
    const uint8_t *offsets      # of `width` bytes each, not always aligned; NULL: the column is not there, all null
    const uint8_t *data
    const uint8_t *validity     # a bit an entry, the lowest first; NULL: none is null
    int64_t bytes               # of data
    int64_t first
    int64_t entries             # how many there are from `first` on
    int width                   # 4 or 8

# A column of numbers.
ctypedef struct NumberInput:
    const uint8_t *values       # NULL: the column is not there, all null
    const uint8_t *validity
    int64_t first

# The batch of a partition that is being filled.
ctypedef struct OpenBatch:
    uint8_t *data               # in a bytearray of `_memory`, the header's room left free; NULL: no memory yet
    int64_t room                # without memory: that of the batch before
    int64_t size                # header and records so far; 0 without memory
    int64_t base_timestamp      # of the first record
    int64_t max_timestamp
    int64_t largest             # bytes of the largest record
    int32_t count


# One record batch's columns, held while its rows are encoded.
@cython.final
cdef class Rows:
    cdef readonly int64_t count
    cdef ByteInput key
    cdef ByteInput value
    cdef ByteInput header_key
    cdef ByteInput header_value
    cdef ByteInput headers      # offsets of 4 bytes into the two above; `data` is not used
    cdef NumberInput partition  # int32
    cdef NumberInput timestamp  # int64, milliseconds
    cdef const uint8_t *order   # uint64 a row; NULL: they are encoded as they lie
    cdef Py_buffer _held[MOST_HELD]
    cdef int _holds

    cdef const uint8_t *_hold(self, object buffer, int64_t least) except? NULL
    cdef int _bytes(self, ByteInput *into, object column, int64_t least) except -1
    cdef int _numbers(self, NumberInput *into, object column, int size) except -1


# The open batches of one topic.
@cython.final
cdef class TopicBatches:
    cdef readonly int32_t partitions
    cdef readonly int64_t open_bytes    # in all open batches
    cdef public int32_t sticky          # where rows without partition and key go
    cdef readonly int32_t full          # the partition whose batch is full, after `append`; -1: none
    cdef int64_t _batch_bytes
    cdef OpenBatch *_open
    cdef list _memory                   # the bytearrays

    cdef int _make_room(self, int32_t partition, int64_t needed) except -1
    cdef int64_t _encode(
        self, Rows rows, int64_t place, int64_t end, int64_t now, int *stop, int64_t *needed
    ) noexcept nogil
    cdef str _explain(self, int stop, int64_t number)
