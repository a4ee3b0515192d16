# Reads the records of a batch of format 2 in decompressed memory, without Python objects for records.
#
# A record is: length (varint, of what follows), attributes (1 byte), timestamp delta (varlong), offset delta
# (varint), key length and key, value length and value, number of headers, and for each header key length, key,
# value length, value. Lengths are varints; a negative length of key, value or header value is null.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.batch cimport BatchHeader

# The result of reading a record, or of walking over several.
cdef enum Step:
    STEP_DONE = 0
    STEP_MORE = 1               # the memory ends inside the record (`missing`: at least so many bytes more)
    STEP_BAD_LENGTH = 2         # the record's length is negative or not a varint
    STEP_CUT = 3                # a field extends beyond the record's length, or is not a varint
    STEP_HEADER_COUNT = 4       # negative, or more than the bytes left
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

# Read the record at `at`; if the result is STEP_DONE, everything up to its end was checked.
cdef Step read_record(const uint8_t *at, const uint8_t *end, RecordView *record, int64_t *missing) noexcept nogil

cdef enum Fault:
    FAULT_NO_KEY = 0            # a null key although keys are required
    FAULT_TIMESTAMP = 1         # a timestamp outside the allowed range
    FAULT_APPEND_TIME = 2       # the producer set the timestamp type to LogAppendTime

ctypedef struct RecordFault:
    int32_t index               # the record's index in the batch
    Fault fault
    int64_t timestamp

cdef enum:
    MAX_FAULTS = 1000           # faults that are stored; a batch can have more

# A walk over all records of a batch: what the batch declares, the checks to do, and the findings so far.
ctypedef struct Walk:
    int32_t count               # number of records that the batch declares
    int64_t base_timestamp
    bint append_time            # every record's timestamp is `append_timestamp`
    int64_t append_timestamp
    bint need_keys
    bint check_window           # timestamps other than -1 must be in earliest..latest
    int64_t earliest
    int64_t latest
    bint refuse_append_time
    int32_t index               # number of records walked so far
    bint offsets_in_order       # True if each record's offset delta was its index
    int64_t max_timestamp       # largest timestamp so far, at least -1
    int64_t missing             # after STEP_MORE: at least so many bytes more are needed
    int32_t fault_count         # faults found, including those not stored
    bint timestamp_fault        # True if one of them is about a timestamp
    RecordFault *faults         # the stored faults, owned (PyMem_Raw); NULL if there are none
    int32_t faults_kept         # number of stored faults
    int32_t faults_room         # capacity of `faults`

# Fill in what the header declares about its records; the other fields must be zero and stay so.
cdef void begin_walk(Walk *walk, BatchHeader header) noexcept

# Continue the walk at cursor[0], which is moved past the last complete record. Return STEP_DONE after `count` records,
# STEP_MORE if the memory ends before; then call again with the rest and the following bytes.
cdef Step walk_records(Walk *walk, const uint8_t **cursor, const uint8_t *end) noexcept nogil

# Return the timestamp of a record as a consumer gets it.
cdef int64_t timestamp_of(const Walk *walk, const RecordView *record) noexcept nogil

# Return the error message for a Step that is an error.
cdef str explain(Step step, int32_t index, int64_t missing)
