# Reads the records of one entry of a log, of any format, for the cleaner.
#
# An entry is a batch of format 2 or a message of format 0 or 1. If it is compressed, the caller passes its decompressed
# payload. Every length is checked before it is used.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.message_sets cimport InnerSet, SetFault
from kafkapy._ext.records cimport Step as RecordStep

ctypedef struct KeyedRecord:
    const uint8_t *at           # first byte of the record or message
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    const uint8_t *end          # first byte after the record or message
    int64_t offset
    int64_t timestamp           # as a consumer gets it
    int32_t key_length
    int32_t value_length
    bint other_magic            # True if a message has another format than its wrapper (KAFKA-4298)

cdef enum RecordsFault:
    RECORDS_VALID = 0
    RECORDS_RECORD = 1          # an invalid record of format 2: see `step`
    RECORDS_SET = 2             # an invalid message set in a wrapper: see `set_fault`
    RECORDS_LEFT_OVER = 3       # bytes follow the last record
    RECORDS_COUNT = 4           # a negative number of records
    RECORDS_OFFSET = 5          # a record's offset is outside of the batch, or not above the previous offset

ctypedef struct RecordCursor:
    const uint8_t *at           # the next record
    const uint8_t *end
    int64_t base_offset
    int64_t last_offset         # of the batch, or of the wrapper
    int64_t base_timestamp
    int64_t append_timestamp
    int64_t previous            # offset of the previous record; -1: none
    int64_t missing
    int32_t index               # records read so far
    int32_t count
    int8_t magic
    bint append_time            # True if each record's timestamp is `append_timestamp`
    bint wrapped                # True for a message set inside a wrapper
    RecordsFault fault
    RecordStep step
    SetFault set_fault
    InnerSet inner

# Begin with the records of the complete entry at `at`; `payload` is NULL unless it is compressed. False: see `fault`.
cdef bint begin_records(
    RecordCursor *cursor, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
) noexcept nogil

# Read the next record; return False at the end and if `fault` is set.
cdef bint next_record(RecordCursor *cursor, KeyedRecord *record) noexcept nogil

# Return the error message for the fault.
cdef str explain_records(const RecordCursor *cursor)
