# The first pass of a cleaning: the last offset of every key in the part of a log that was not cleaned yet.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkapy._ext.decided_txns cimport DecidedTransactions
from kafkapy._ext.keyed_records cimport KeyedRecord, RecordCursor
from kafkapy._ext.keymap cimport KeyHash, KeyMap

# Why a walk over entries stopped.
cdef enum Stop:
    STOP_END = 0                # nothing whole follows
    STOP_PAYLOAD = 1            # the entry here is compressed, and its payload is needed
    STOP_FULL = 2               # the map takes no more keys
    STOP_ENTRY = 3              # no entry can begin like this
    STOP_CRC = 4                # the entry's checksum is wrong
    STOP_RECORDS = 5            # the entry's records are none: see the cursor
    STOP_PACKED = 6             # what remains of a compressed entry has to be compressed (ext/compactor)
    STOP_LARGE = 7              # what remains of an entry is more than an entry can hold
    STOP_ORDER = 8              # the entry's offsets do not follow those before, or reach into the next segment
    STOP_MEMORY = 9

cdef enum:
    WINDOW = 64                 # records whose places in the map are fetched into the cache at a time

# Whether the offsets of the whole entry at `at` lie in lower..end-1, as far as its header tells them; then `lower` is
# moved behind them.
cdef bint offsets_follow(const uint8_t *at, int64_t *lower, int64_t end) noexcept nogil

# The type of a control batch's record; -1 when there is none, -2 when it cannot be read. Moves the cursor.
cdef int marker_kind(RecordCursor *cursor) noexcept nogil

# A sentence for a Stop that is an error, at `position` of a buffer of `size` bytes.
cdef str explain_stop(
    Stop stop, const RecordCursor *cursor, const uint8_t *data, Py_ssize_t position, Py_ssize_t size
)


@cython.final
cdef class KeyIndex:
    cdef KeyMap _keys
    cdef DecidedTransactions _transactions
    cdef int64_t _start_offset
    cdef int64_t _lower                     # offsets of the next entry are at least this
    cdef int64_t _end                       # and below this: where the next segment begins
    cdef readonly int64_t latest_offset     # up to here every key is in the map; -1 at the beginning
    cdef readonly int64_t records           # read so far
    cdef readonly int64_t bytes             # of the entries read so far
    cdef readonly Py_ssize_t position       # in the buffer of the last `feed`: where the next entry begins
    cdef readonly bint full                 # the map takes no more keys: the log is mapped up to `latest_offset`
    cdef RecordCursor _cursor

    cdef Stop _walk(self, const uint8_t *data, Py_ssize_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _entry(self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _put_keys(self) noexcept nogil
