# Encodes rows of Arrow columns as records in batches (format 2), one open batch for each partition.

cimport cython
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    MOST_HELD = 20              # buffers: 19 are possible, three of each column of bytes and at most two of the others

# A column of bytes in Arrow's memory. Row i is entry `first + i` of the arrays.
ctypedef struct ByteInput:
    const uint8_t *offsets      # `width` bytes each, not always aligned; NULL: the column is missing, all rows are null
    const uint8_t *data
    const uint8_t *validity     # one bit for each entry, the lowest first; NULL: no entry is null
    int64_t bytes               # size of `data`
    int64_t first
    int64_t entries             # number of entries from `first` on
    int width                   # 4 or 8

# A column of numbers.
ctypedef struct NumberInput:
    const uint8_t *values       # NULL: the column is missing, all rows are null
    const uint8_t *validity
    int64_t first

# The open batch of a partition.
ctypedef struct OpenBatch:
    uint8_t *data               # in a bytearray of `_memory`, beginning with room for the header; NULL: no memory yet
    int64_t room                # capacity of `data`; if NULL, the capacity to begin with
    int64_t size                # header and records so far; 0 if `data` is NULL
    int64_t base_timestamp      # of the first record
    int64_t max_timestamp
    int64_t largest             # bytes of the largest record
    int32_t count


# The columns of one Arrow record batch, held while its rows are encoded.
@cython.final
cdef class Rows:
    cdef readonly int64_t count
    cdef ByteInput key
    cdef ByteInput value
    cdef ByteInput header_key
    cdef ByteInput header_value
    cdef ByteInput headers      # offsets of 4 bytes into header_key and header_value; `data` is not used
    cdef NumberInput partition  # int32
    cdef NumberInput timestamp  # int64, milliseconds
    cdef const uint8_t *order   # one uint64 for each row; NULL: the rows are encoded in their own order
    cdef Py_buffer _held[MOST_HELD]
    cdef int _holds

    cdef const uint8_t *_hold(self, object buffer, int64_t least) except? NULL
    cdef int _bytes(self, ByteInput *into, object column, int64_t least) except -1
    cdef int _numbers(self, NumberInput *into, object column, int size) except -1


# The open batches of one topic.
@cython.final
cdef class TopicBatches:
    cdef readonly int32_t partitions
    cdef readonly int64_t open_bytes    # memory of all open batches
    cdef public int32_t sticky          # the partition for rows without partition and key
    cdef readonly int32_t full          # after `append`: the partition whose batch is full; -1: none
    cdef int64_t _batch_bytes
    cdef OpenBatch *_open
    cdef list _memory                   # the bytearrays

    cdef int _make_room(self, int32_t partition, int64_t needed) except -1
    cdef int64_t _encode(
        self, Rows rows, int64_t place, int64_t end, int64_t now, int *stop, int64_t *needed
    ) noexcept nogil
    cdef str _explain(self, int stop, int64_t number)
