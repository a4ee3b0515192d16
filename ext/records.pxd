# The records inside a batch of format 2, in plain memory (decompressed), without a Python object for any of them.
#
# A record is: length (varint, of what follows), attributes (1 byte), timestamp delta (varlong), offset delta
# (varint), key length and key, value length and value, number of headers, and for each header key length, key,
# value length, value. Lengths are varints; a negative length of key, value or header value is null.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.batch cimport BatchHeader

# What reading a record, or walking over many, comes to.
cdef enum Step:
    STEP_DONE = 0
    STEP_MORE = 1               # the memory ends inside the record (`missing` says by how many bytes at least)
    STEP_BAD_LENGTH = 2         # the record's length is negative or no varint
    STEP_CUT = 3                # a field goes beyond the record's length, or is no varint
    STEP_HEADER_COUNT = 4       # negative, or more than there are bytes left
    STEP_HEADER_KEY = 5         # a header's key is null
    STEP_LEFT_OVER = 6          # the fields end before the record's length does

ctypedef struct RecordView:
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    const uint8_t *headers      # first byte after the number of headers
    const uint8_t *end          # first byte after the record
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_length          # 0 when null
    int32_t value_length        # 0 when null
    int32_t header_count
    int32_t length              # as stored
    int8_t attributes

# Read the record at `at`; everything up to its end has been checked when the answer is STEP_DONE.
cdef Step read_record(const uint8_t *at, const uint8_t *end, RecordView *record, int64_t *missing) noexcept nogil

cdef enum Fault:
    FAULT_NO_KEY = 0            # a null key where keys are needed
    FAULT_TIMESTAMP = 1         # a timestamp outside of the window
    FAULT_APPEND_TIME = 2       # the producer set the timestamp type to the time of the append

ctypedef struct RecordFault:
    int32_t index               # which record of the batch
    Fault fault
    int64_t timestamp

cdef enum:
    MAX_FAULTS = 1000           # faults that are remembered one by one; a batch can have more

# A walk over all records of one batch: what is declared, what is asked of the records, and what was found so far.
ctypedef struct Walk:
    int32_t count               # records the batch declares
    int64_t base_timestamp
    bint append_time            # every record's timestamp is `append_timestamp`
    int64_t append_timestamp
    bint need_keys
    bint check_window           # timestamps other than -1 have to be in earliest..latest
    int64_t earliest
    int64_t latest
    bint refuse_append_time
    int32_t index               # records walked so far
    bint offsets_in_order       # whether each record's offset delta was its index
    int64_t max_timestamp       # largest timestamp so far, at least -1
    int64_t missing             # after STEP_MORE: how many bytes more are needed at least
    int32_t fault_count         # faults found, also those not remembered
    bint timestamp_fault        # whether one of them was about a timestamp
    RecordFault *faults         # the first of them, owned (PyMem_Raw); NULL until there is one
    int32_t faults_kept         # how many are in `faults`
    int32_t faults_room         # how many `faults` has room for

# What a header says about its records; all else is left as it is (zero).
cdef void begin_walk(Walk *walk, BatchHeader header) noexcept

# Walk on from cursor[0], which is moved past the last record that was read. STEP_DONE after `count` records;
# STEP_MORE when the memory ends before that, to be called again with the rest and more behind it.
cdef Step walk_records(Walk *walk, const uint8_t **cursor, const uint8_t *end) noexcept nogil

# The timestamp of a record, as a consumer gets it.
cdef int64_t timestamp_of(const Walk *walk, const RecordView *record) noexcept nogil

# A sentence for a Step that is an error.
cdef str explain(Step step, int32_t index, int64_t missing)
