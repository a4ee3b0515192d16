# The second pass of a cleaning: chooses what stays of each entry of a log.
#
# Source: Kafka's Cleaner.cleanInto and MemoryRecords.filterTo. If all records of an entry stay, the entry is copied
# unchanged. Otherwise it is rewritten, with its base offset, last offset, sequence and producer unchanged.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkapy._ext.cursor cimport Writer
from kafkapy._ext.decided_txns cimport DecidedTransactions
from kafkapy._ext.key_index cimport Stop
from kafkapy._ext.keyed_records cimport KeyedRecord, RecordCursor
from kafkapy._ext.keymap cimport KeyMap

# The last state of a producer that the log remembers.
ctypedef struct LastRecord:
    int64_t producer_id
    int64_t last_data_offset    # -1: the producer has written only markers
    int32_t epoch

# What happens to a batch, decided before its records are read.
ctypedef struct Verdict:
    bint keep_empty             # the batch stays even without records: it has the producer's last sequence (or epoch)
    bint drop_records           # none of its records stay
    bint marker_needless        # a transaction marker that no remaining record needs

# What stays of an entry.
ctypedef struct Kept:
    int32_t records
    int64_t first_timestamp
    int64_t max_timestamp       # at least -1
    int64_t first_offset
    int64_t last_offset
    bint all                    # every record stays, unchanged
    bint tombstones             # one of the records that stay has no value


@cython.final
cdef class Compactor:
    cdef KeyMap _keys
    cdef DecidedTransactions _transactions
    cdef int64_t _mapped_to             # records above this offset are not in the key map and stay
    cdef int64_t _now                   # the time of this cleaning, ms
    cdef int64_t _delete_retention      # ms
    cdef int64_t _lower                 # the smallest offset that the next entry may have
    cdef int64_t _end                   # offsets are below this: where the next segment begins
    cdef bint _keep_old_tombstones      # tombstones of formats 0 and 1 in this segment stay
    cdef LastRecord *_producers         # ascending by id
    cdef Py_ssize_t _producer_count
    cdef readonly Writer out            # the entries that stay; the caller writes them to a file and clears `out`
    cdef readonly Writer unpacked       # after STOP_PACKED: the records to compress
    cdef readonly Py_ssize_t position   # start of the next entry in the buffer of the last `feed`
    cdef readonly int64_t bytes_read
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef readonly int64_t keyless       # records without a key, which were removed
    cdef RecordCursor _cursor
    cdef Verdict _verdict               # for the entry at `position`
    cdef bint _judged                   # True if _verdict is set: `feed` is called again, with the payload
    cdef Kept _kept                     # of the entry at `position`
    cdef uint8_t *_keep                 # one flag for each record of the entry
    cdef Py_ssize_t _keep_room

    cdef Stop _walk(
        self, const uint8_t *data, Py_ssize_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _entry(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _judge(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _choose(self, const uint8_t *at) noexcept nogil
    cdef bint _stays(self, const uint8_t *at, const KeyedRecord *record, int64_t last_of_key) noexcept nogil
    cdef Stop _rebuild_batch(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef Stop _rebuild_set(
        self, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
    cdef const LastRecord *_producer(self, int64_t producer_id) noexcept nogil
    cdef void _step(self, const uint8_t *at) noexcept nogil
    cdef int64_t _base_timestamp(self, const uint8_t *at) noexcept nogil
    cdef int64_t _wrapper_timestamp(self, const uint8_t *at) noexcept nogil
    cdef void _put_header(self, uint8_t *to, const uint8_t *at, int64_t size) noexcept nogil
    cdef void _put_empty(self, uint8_t *to, const uint8_t *at) noexcept nogil
    cdef uint8_t *_put_records(
        self, uint8_t *to, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
    ) noexcept nogil
