"""The records of an entry of any format, for the cleaner; see keyed_records.pxd."""

from libc.stdint cimport int16_t, uint64_t
from libc.string cimport memset

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA, AT_MAGIC,
    AT_MAX_TIMESTAMP, HEADER_SIZE,
)
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.legacy cimport (
    FOUND_WHOLE, MSG_ATTRIBUTES, MSG_OFFSET, MSG_TIMESTAMP, MessageView, read_message,
)
from kafkapy._ext.message_sets cimport (
    SET_MESSAGE, SET_VALID, begin_set, explain_set, measure_set, offset_in, timestamp_in,
)
from kafkapy._ext.records cimport STEP_DONE, RecordView, explain, read_record


cdef bint begin_records(
    RecordCursor *cursor, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
) noexcept nogil:
    memset(cursor, 0, sizeof(RecordCursor))
    cursor.magic = <int8_t>at[AT_MAGIC]
    cursor.base_offset = <int64_t>load64(at + AT_BASE_OFFSET)
    cursor.previous = -1
    if cursor.magic == 2:
        return _begin_batch(cursor, at, size, payload, payload_size)
    cursor.last_offset = cursor.base_offset
    cursor.wrapped = payload != NULL
    if not cursor.wrapped:
        cursor.at = at
        cursor.end = at + size
        cursor.count = 1
        return True
    cursor.at = payload
    cursor.end = payload + payload_size
    begin_set(
        &cursor.inner, cursor.magic, <int8_t>at[MSG_ATTRIBUTES], cursor.last_offset,
        <int64_t>load64(at + MSG_TIMESTAMP) if cursor.magic else -1,
    )
    cursor.set_fault = measure_set(&cursor.inner, cursor.at, cursor.end)
    if cursor.set_fault != SET_VALID:
        cursor.fault = RECORDS_SET
        return False
    cursor.count = cursor.inner.count
    return True


cdef bint _begin_batch(
    RecordCursor *cursor, const uint8_t *at, int64_t size, const uint8_t *payload, Py_ssize_t payload_size
) noexcept nogil:
    cursor.at = payload if payload != NULL else at + HEADER_SIZE
    cursor.end = payload + payload_size if payload != NULL else at + size
    cursor.last_offset = cursor.base_offset + <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
    cursor.base_timestamp = <int64_t>load64(at + AT_BASE_TIMESTAMP)
    cursor.append_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
    cursor.append_time = (<int16_t>load16(at + AT_ATTRIBUTES) & APPEND_TIME_BIT) != 0
    cursor.count = <int32_t>load32(at + AT_COUNT)
    if cursor.count < 0:
        cursor.fault = RECORDS_COUNT
        return False
    return True


cdef bint next_record(RecordCursor *cursor, KeyedRecord *record) noexcept nogil:
    if cursor.index == cursor.count:
        if cursor.magic == 2 and cursor.at != cursor.end:
            cursor.fault = RECORDS_LEFT_OVER
        return False
    if not (_next_of_batch(cursor, record) if cursor.magic == 2 else _next_message(cursor, record)):
        return False
    if record.offset <= cursor.previous or record.offset > cursor.last_offset:
        cursor.fault = RECORDS_OFFSET
        return False
    cursor.previous = record.offset
    cursor.at = record.end
    cursor.index += 1
    return True


cdef bint _next_of_batch(RecordCursor *cursor, KeyedRecord *record) noexcept nogil:
    cdef RecordView view
    cursor.step = read_record(cursor.at, cursor.end, &view, &cursor.missing)
    if cursor.step != STEP_DONE:
        cursor.fault = RECORDS_RECORD
        return False
    record.at = cursor.at
    record.key = view.key
    record.value = view.value
    record.end = view.end
    record.key_length = view.key_length
    record.value_length = view.value_length
    record.offset = cursor.base_offset + view.offset_delta
    if cursor.append_time:
        record.timestamp = cursor.append_timestamp
    else:   # a hostile delta wraps around, as in Java
        record.timestamp = <int64_t>(<uint64_t>cursor.base_timestamp + <uint64_t>view.timestamp_delta)
    record.other_magic = False
    return True


cdef bint _next_message(RecordCursor *cursor, KeyedRecord *record) noexcept nogil:
    cdef MessageView view
    cursor.inner.found = read_message(cursor.at, cursor.end, &view, &cursor.inner.missing)
    if cursor.inner.found != FOUND_WHOLE:
        cursor.inner.fault_at = cursor.at
        cursor.set_fault = SET_MESSAGE
        cursor.fault = RECORDS_SET
        return False
    record.at = cursor.at
    record.key = view.key
    record.value = view.value
    record.end = view.end
    record.key_length = view.key_length
    record.value_length = view.value_length
    record.offset = offset_in(&cursor.inner, &view) if cursor.wrapped else view.offset
    record.timestamp = timestamp_in(&cursor.inner, &view) if cursor.wrapped else view.timestamp
    record.other_magic = view.magic != cursor.magic
    return True


cdef str explain_records(const RecordCursor *cursor):
    if cursor.fault == RECORDS_RECORD:
        return explain(cursor.step, cursor.index, cursor.missing)
    if cursor.fault == RECORDS_SET:
        return explain_set(cursor.set_fault, &cursor.inner)
    if cursor.fault == RECORDS_LEFT_OVER:
        return f"{cursor.end - cursor.at} bytes are left after the {cursor.count} records"
    if cursor.fault == RECORDS_COUNT:
        return f"the batch declares {cursor.count} records"
    return f"record {cursor.index} has an offset that is not in {cursor.previous + 1}..{cursor.last_offset}"
