# The second pass of a cleaning: of every entry of a log what has to stay.
#
# Source: Kafka's Cleaner.cleanInto and MemoryRecords.filterTo. An entry of which everything stays is copied as it is;
# one of which a part goes is built anew, with its base offset, last offset, sequence and producer as they were.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._ext.cursor cimport Writer
from kafkapy._ext.decided_txns cimport DecidedTransactions
from kafkapy._ext.key_index cimport Stop
from kafkapy._ext.keyed_records cimport KeyedRecord, RecordCursor
from kafkapy._ext.keymap cimport KeyMap

# What the log last saw of a producer that is still remembered.
ctypedef struct LastRecord:
    int64_t producer_id
    int64_t last_data_offset    # -1: nothing but markers
    int32_t epoch

# What is to be done with a batch, before its records are looked at.
ctypedef struct Verdict:
    bint keep_empty             # it stays even without records: the producer's last sequence (or epoch) is in it
    bint drop_records           # none of its records stays
    bint marker_needless        # a marker with nothing left that needs it

# What stays of an entry.
ctypedef struct Kept:
    int32_t records
    int64_t first_timestamp
    int64_t max_timestamp       # at least -1
    int64_t first_offset
    int64_t last_offset
    bint all                    # as they are, none left out
    bint tombstones             # one of them has no value


@cython.final
cdef class Compactor:
    cdef KeyMap _keys
    cdef DecidedTransactions _transactions
    cdef int64_t _mapped_to             # offsets above it are not in the map: their records stay
    cdef int64_t _now                   # the time of this cleaning, ms
    cdef int64_t _delete_retention      # ms
    cdef int64_t _lower                 # offsets of the next entry are at least this
    cdef int64_t _end                   # and below this: where the next segment begins
    cdef bint _keep_old_tombstones      # those of formats 0 and 1 in the segment that is read
    cdef LastRecord *_producers         # ascending by id
    cdef Py_ssize_t _producer_count
    cdef readonly Writer out            # what stays of what was fed; for the caller to write and clear
    cdef readonly Writer unpacked       # after STOP_PACKED: the records to compress
    cdef readonly Py_ssize_t position   # in the buffer of the last `feed`: where the next entry begins
    cdef readonly int64_t bytes_read
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t keyless       # records without a key, which were dropped
    cdef RecordCursor _cursor
    cdef Verdict _verdict               # of the entry at `position`
    cdef bint _judged                   # whether that was made already: the payload was asked for
    cdef Kept _kept                     # of it
    cdef uint8_t *_keep                 # a flag a record of the entry
    cdef Py_ssize_t _keep_room

    cdef Stop _walk(self, const uint8_t *data, Py_ssize_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _entry(self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _judge(self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _choose(self, const uint8_t *at) noexcept nogil
    cdef bint _stays(self, const uint8_t *at, const KeyedRecord *record, int64_t last_of_key) noexcept nogil
    cdef Stop _rebuild_batch(self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef Stop _rebuild_set(self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
    cdef const LastRecord *_producer(self, int64_t producer_id) noexcept nogil
    cdef void _step(self, const uint8_t *at) noexcept nogil
    cdef int64_t _base_timestamp(self, const uint8_t *at) noexcept nogil
    cdef int64_t _wrapper_timestamp(self, const uint8_t *at) noexcept nogil
    cdef void _put_header(self, uint8_t *to, const uint8_t *at, int64_t size) noexcept nogil
    cdef void _put_empty(self, uint8_t *to, const uint8_t *at) noexcept nogil
    cdef uint8_t *_put_records(self, uint8_t *to, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size) noexcept nogil
