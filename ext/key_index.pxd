# The first pass of a cleaning: finds the last offset of every key in the part of a log that was not cleaned yet.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkapy._ext.decided_txns cimport DecidedTransactions
from kafkapy._ext.keyed_records cimport KeyedRecord, RecordCursor
from kafkapy._ext.keymap cimport KeyHash, KeyMap

# Why a walk over entries stopped.
cdef enum Stop:
    STOP_END = 0                # no complete entry follows
    STOP_PAYLOAD = 1            # the entry is compressed: its payload is needed
    STOP_FULL = 2               # the map has no room for another key
    STOP_ENTRY = 3              # the bytes are not the start of an entry
    STOP_CRC = 4                # the entry's CRC is wrong
    STOP_RECORDS = 5            # the entry's records are invalid: see the cursor
    STOP_PACKED = 6             # the records that stay of a compressed entry have to be compressed (ext/compactor)
    STOP_LARGE = 7              # the records that stay exceed the size of an entry
    STOP_ORDER = 8              # the entry's offsets do not follow those before, or belong to the next segment
    STOP_MEMORY = 9

cdef enum:
    WINDOW = 64                 # records whose map entries are prefetched together

# Return True if the offsets of the complete entry at `at` are in lower..end-1, by its header; then move `lower` to the
# offset after them.
cdef bint offsets_follow(const uint8_t *at, int64_t *lower, int64_t end) noexcept nogil

# Return the type of a control batch's record; -1 if there is no record, -2 if it is invalid. Moves the cursor.
cdef int marker_kind(RecordCursor *cursor) noexcept nogil

# Return the error message for a Stop that is an error, at `position` of a buffer of `size` bytes.
cdef str explain_stop(
    Stop stop, const RecordCursor *cursor, const uint8_t *data, Py_ssize_t position, Py_ssize_t size
)


@cython.final
cdef class KeyIndex:
    cdef KeyMap _keys
    cdef DecidedTransactions _transactions
    cdef int64_t _start_offset
    cdef int64_t _lower                     # the smallest offset that the next entry may have
    cdef int64_t _end                       # offsets are below this: where the next segment begins
    cdef readonly int64_t latest_offset     # all keys up to this offset are in the map; -1 at first
    cdef readonly int64_t records           # read so far
    cdef readonly int64_t bytes             # of the entries read so far
    cdef readonly Py_ssize_t position       # start of the next entry in the buffer of the last `feed`
    cdef readonly bint full                 # the map has no room for more keys; it is complete up to `latest_offset`
    cdef RecordCursor _cursor

    cdef Stop _walk(
        self, const uint8_t *data, Py_ssize_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _entry(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _put_keys(self) noexcept nogil
