# The records of one entry of a log, of any format, one after the other: what the cleaner asks of them.
#
# An entry is a batch of format 2 or a message of format 0 or 1; of a compressed one the decompressed payload is
# handed in. Everything is checked against the memory that is there before it is looked at.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.message_sets cimport InnerSet, SetFault
from kafkapy._ext.records cimport Step as RecordStep

ctypedef struct KeyedRecord:
    const uint8_t *at           # first byte of the record or message
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    const uint8_t *end          # first byte after it
    int64_t offset
    int64_t timestamp           # as a consumer gets it
    int32_t key_length
    int32_t value_length
    bint other_magic            # a message of another format than its wrapper (KAFKA-4298)

cdef enum RecordsFault:
    RECORDS_SOUND = 0
    RECORDS_RECORD = 1          # a record of format 2 is none: see `step`
    RECORDS_SET = 2             # the message set in a wrapper is none: see `set_fault`
    RECORDS_LEFT_OVER = 3       # bytes follow the last record
    RECORDS_COUNT = 4           # a negative number of records
    RECORDS_OFFSET = 5          # a record's offset is outside of the batch, or not above the one before

ctypedef struct RecordCursor:
    const uint8_t *at           # the next record
    const uint8_t *end
    int64_t base_offset
    int64_t last_offset         # of the batch, or of the wrapper
    int64_t base_timestamp
    int64_t append_timestamp
    int64_t previous            # offset of the record before
    int64_t missing
    int32_t index               # records given so far
    int32_t count
    int8_t magic
    bint append_time            # each record's timestamp is `append_timestamp`
    bint wrapped                # a message set inside a wrapper
    RecordsFault fault
    RecordStep step
    SetFault set_fault
    InnerSet inner

# Begin with the records of the whole entry at `at`; `payload` is that of a compressed one, else NULL. False: fault.
cdef bint begin_records(
    RecordCursor *cursor, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
) noexcept nogil

# The next record; False at the end, and where `fault` is set.
cdef bint next_record(RecordCursor *cursor, KeyedRecord *record) noexcept nogil

# A sentence for the fault.
cdef str explain_records(const RecordCursor *cursor)
