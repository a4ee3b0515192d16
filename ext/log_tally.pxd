# Counts what is in the batches of a partition, in one walk over all records without the GIL.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from kafkapy._ext.aborted cimport AbortedTransactions
from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.key_totals cimport KeyTotals
from kafkapy._ext.stored_records cimport Stored, StoredRecords

cdef enum:
    CODECS = 8
    FORMATS = 3
    SIZES = 33                  # histograms by powers of two: number i counts from 2^(i-1) to less than 2^i
    MOMENTS = 1024              # intervals of the time line
    GAPS = 10                   # gaps that are stored: the largest
    MOST_PRODUCERS = 65536      # producers that are counted separately: the first

ctypedef struct ByCodec:
    int64_t batches
    int64_t records             # data records
    int64_t bytes               # of complete batches
    int64_t packed              # of their records, as stored
    int64_t unpacked            # of their records, decompressed

ctypedef struct ByFormat:
    int64_t batches
    int64_t records
    int64_t bytes

# All counts become a dict with these names in Python.
ctypedef struct Counts:
    int64_t batches
    int64_t bytes
    int64_t records             # data records
    int64_t empty_batches       # batches whose records were all removed by compaction
    int64_t control_batches
    int64_t control_records
    int64_t control_bytes       # of complete batches
    int64_t transactional_records
    int64_t append_time_batches
    int64_t delete_horizon_batches
    int64_t null_keys
    int64_t null_values         # of records without a key
    int64_t tombstones          # records with a key and without a value
    int64_t with_headers        # records with headers
    int64_t headers
    int64_t key_bytes
    int64_t value_bytes
    int64_t record_bytes        # of data records, decompressed, including their overhead
    int64_t largest_record      # the most record_bytes of one record
    int64_t largest_batch
    int64_t without_timestamp
    int64_t min_timestamp       # of the records with a timestamp
    int64_t max_timestamp
    int64_t out_of_order        # records with a timestamp below that of the previous record
    int64_t first_offset        # -1: no record yet
    int64_t last_offset         # of the last batch, even if that record was removed; -1: no batch yet
    int64_t gaps
    int64_t missing             # offsets in the gaps
    int64_t backward            # batches that begin at or before the last offset
    int64_t first_epoch         # leader epochs; -1: none
    int64_t last_epoch
    int64_t committed           # transactions, by their markers
    int64_t aborted
    int64_t aborted_records     # of transactions whose abort marker was read
    int64_t aborted_bytes
    int64_t open_records        # of transactions without a marker
    int64_t dropped_records     # records of the aborted transactions passed in, which read_committed does not get
    int64_t dropped_bytes
    int64_t keyed_records       # records that compaction compares: with a key, and not dropped
    int64_t keyed_bytes
    int64_t keyless_records     # without a key, and not dropped
    int64_t keyless_bytes

ctypedef struct Producer:
    int64_t id
    int64_t batches
    int64_t records
    int64_t bytes
    int64_t first_offset
    int64_t last_offset
    int64_t open_first          # first offset of the open transaction; -1: none
    int64_t open_records
    int64_t open_bytes
    int32_t last_sequence
    int16_t epoch               # of the last batch

ctypedef struct Gap:
    int64_t after               # the offset before it
    int64_t missing

# Records and their bytes by time: number i is for timestamps with (timestamp >> shift) - origin == i. If a timestamp
# does not fit, pairs of intervals are combined until it does.
ctypedef struct Moment:
    int64_t records
    int64_t bytes


@cython.final
cdef class LogTally:
    cdef StoredRecords _walk
    cdef AbortedTransactions _aborted
    cdef readonly KeyTotals keys
    cdef Counts _counts
    cdef ByCodec _codecs[CODECS]
    cdef ByFormat _formats[FORMATS]
    cdef int64_t _batch_sizes[SIZES]
    cdef int64_t _batch_records[SIZES]
    cdef Gap _gaps[GAPS]
    cdef Moment _moments[MOMENTS]
    cdef int64_t _origin
    cdef int _shift
    cdef bint _any_moment
    cdef IntMap _by_id              # producer id -> index in _producers
    cdef Producer *_producers
    cdef int32_t _known
    cdef int32_t _room
    cdef readonly int64_t producers_left_out
    # The state of the walk:
    cdef bint _in_batch
    cdef bint _dropped
    cdef bint _no_memory
    cdef int32_t _producer          # index of the batch's producer; -1: none
    cdef int64_t _previous          # offset of the last record; -1: none
    cdef int64_t _previous_time
    cdef int64_t _batch_count       # records of this batch so far
    cdef int64_t _batch_unpacked    # bytes of these records

    cdef Stored _run(self) noexcept nogil
    cdef void _begin_batch(self) noexcept nogil
    cdef void _end_batch(self) noexcept nogil
    cdef void _record(self) noexcept nogil
    cdef void _marker(self) noexcept nogil
    cdef void _time(self, int64_t timestamp, int64_t size) noexcept nogil
    cdef void _gap(self, int64_t after, int64_t missing) noexcept nogil
    cdef int32_t _producer_of(self) noexcept nogil
    cdef void _widen(self, int64_t timestamp) noexcept nogil
