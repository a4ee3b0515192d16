# Records as Arrow-ready columns: plain memory in Arrow's layout, without Python objects for records.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._ext.aborted cimport AbortedTransactions
from kafkapy._ext.arrow_memory cimport ByteColumn, Growing
from kafkapy._ext.stored_records cimport Stored, StoredRecords

# The columns that can be requested, as bits.
cdef enum:
    COL_PARTITION = 1           # int32, the same in every row
    COL_OFFSET = 2              # int64
    COL_TIMESTAMP = 4           # int64, in milliseconds as a consumer gets it; -1: none
    COL_TIMESTAMP_TYPE = 8      # int8: 0 create time, 1 append time, -1 none (format 0)
    COL_KEY = 16                # bytes
    COL_VALUE = 32              # bytes
    COL_HEADERS = 64            # list of (text, bytes)
    COL_PRODUCER_ID = 128       # int64, -1: none
    COL_PRODUCER_EPOCH = 256    # int16, -1: none
    COL_SEQUENCE = 512          # int32, -1: none
    COL_LEADER_EPOCH = 1024     # int32, -1: none
    COL_ATTRIBUTES = 2048       # int16, of the batch as stored


@cython.final
cdef class ColumnBuilder:
    cdef StoredRecords _walk
    cdef AbortedTransactions _aborted
    cdef tuple _names               # of the requested columns
    cdef int _columns               # the requested columns as bits
    cdef int _width                 # bytes of an offset into keys and values: 4 or 8
    cdef int64_t _max_rows
    cdef int64_t _max_bytes
    cdef bint _skip_control
    # Which records are collected, first and last included:
    cdef int64_t _min_offset
    cdef int64_t _max_offset
    cdef int64_t _min_timestamp
    cdef int64_t _max_timestamp
    cdef int32_t _partition
    # The position of the walk:
    cdef bint _in_batch
    cdef bint _dropped              # no record of this batch is collected
    cdef bint _pending              # the walk's current record did not fit and waits for the next columns
    cdef bint _no_memory
    cdef readonly bint past_end     # a batch after the end offset was seen: no more records will be collected
    cdef readonly int64_t batches   # batches seen so far
    # The collected rows:
    cdef readonly int64_t rows
    cdef readonly int64_t size      # their bytes
    cdef int64_t _without_timestamp
    cdef Growing _fixed[9]          # the numeric columns, see _PLACES
    cdef ByteColumn _key
    cdef ByteColumn _value
    cdef Growing _header_lists      # int32 offsets
    cdef ByteColumn _header_names
    cdef ByteColumn _header_values

    cdef Stored _run(self) noexcept nogil
    cdef bint _begin_batch(self) noexcept nogil
    cdef int _advance(self) except -1
    cdef bint _selected(self) noexcept nogil
    cdef int64_t _row_size(self) noexcept nogil
    cdef bint _append(self) noexcept nogil
    cdef bint _append_headers(self) noexcept nogil
    cdef void _free(self) noexcept
    cdef object _take(self)
