"""The records of a batch of format 2: walks over them in C, decodes them for Python, searches them.

The layout is that of Kafka's DefaultRecord (KIP-98). The input is decompressed memory and untrusted: every length is
checked against the bytes that are there before it is used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport uint64_t

from kafkapy._ext.batch cimport BatchHeader
from kafkapy._ext.varint cimport VARINT_SHORT, get_varint32, get_varint64


cdef int64_t LEAST = -<int64_t>0x7FFFFFFFFFFFFFFF - 1


class CorruptRecords(ValueError):
    """The records of a batch are invalid or contradict its header; the message says where and why."""


cdef inline bint _varint(const uint8_t **at, const uint8_t *end, int32_t *out) noexcept nogil:
    cdef int taken = get_varint32(at[0], end, out)
    if taken <= 0:
        return False
    at[0] += taken
    return True


# Read a length and that many bytes; for a negative length, `start` is NULL and `length` 0.
cdef inline bint _bytes(const uint8_t **at, const uint8_t *end, const uint8_t **start, int32_t *length) noexcept nogil:
    start[0] = NULL
    if not _varint(at, end, length):
        return False
    if length[0] < 0:
        length[0] = 0
        return True
    if length[0] > end - at[0]:
        return False
    start[0] = at[0]
    at[0] += length[0]
    return True


cdef Step _skip_headers(const uint8_t **at, const uint8_t *end, int32_t count) noexcept nogil:
    cdef const uint8_t *start
    cdef int32_t length, i
    for i in range(count):
        if not _bytes(at, end, &start, &length):
            return STEP_CUT
        if start == NULL:
            return STEP_HEADER_KEY
        if not _bytes(at, end, &start, &length):
            return STEP_CUT
    return STEP_DONE


cdef Step read_record(const uint8_t *at, const uint8_t *end, RecordView *record, int64_t *missing) noexcept nogil:
    cdef Step step
    cdef int taken = get_varint32(at, end, &record.length)
    if taken == VARINT_SHORT:
        missing[0] = 1
        return STEP_MORE
    if taken < 0 or record.length < 0:
        return STEP_BAD_LENGTH
    at += taken
    if record.length > end - at:
        missing[0] = record.length - (end - at)
        return STEP_MORE
    end = at + record.length
    record.end = end
    if at == end:
        return STEP_CUT
    record.attributes = <int8_t>at[0]
    at += 1
    taken = get_varint64(at, end, &record.timestamp_delta)
    if taken <= 0:
        return STEP_CUT
    at += taken
    if not _varint(&at, end, &record.offset_delta):
        return STEP_CUT
    if not _bytes(&at, end, &record.key, &record.key_length):
        return STEP_CUT
    if not _bytes(&at, end, &record.value, &record.value_length):
        return STEP_CUT
    if not _varint(&at, end, &record.header_count):
        return STEP_CUT
    if record.header_count < 0 or record.header_count > end - at:
        return STEP_HEADER_COUNT
    record.headers = at
    if record.header_count:
        step = _skip_headers(&at, end, record.header_count)
        if step != STEP_DONE:
            return step
    return STEP_DONE if at == end else STEP_LEFT_OVER


cdef str explain(Step step, int32_t index, int64_t missing):
    if step == STEP_MORE:
        return f"the data ends at least {missing} bytes before the end of record {index}"
    if step == STEP_BAD_LENGTH:
        return f"record {index} has a length that is negative or not a varint"
    if step == STEP_CUT:
        return f"record {index} has a field that is not a varint or extends beyond the record's length"
    if step == STEP_HEADER_COUNT:
        return f"record {index} has a number of headers that is negative or larger than the record"
    if step == STEP_HEADER_KEY:
        return f"record {index} has a header without a key"
    return f"record {index} has bytes after its last field"


# Timestamps wrap around as in Java: the delta is added to the base without an overflow check.
cdef int64_t timestamp_of(const Walk *walk, const RecordView *record) noexcept nogil:
    if walk.append_time:
        return walk.append_timestamp
    return <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>record.timestamp_delta)


cdef void _remember(Walk *walk, Fault fault, int64_t timestamp) noexcept nogil:
    cdef int32_t room
    cdef RecordFault *faults
    if fault != FAULT_NO_KEY:
        walk.timestamp_fault = True
    walk.fault_count += 1
    if walk.faults_kept == MAX_FAULTS:
        return
    if walk.faults_kept == walk.faults_room:
        room = 16 if walk.faults_room == 0 else walk.faults_room * 2
        faults = <RecordFault *>PyMem_RawRealloc(walk.faults, room * sizeof(RecordFault))
        if faults == NULL:
            return              # the fault is counted, so the batch is refused anyway
        walk.faults = faults
        walk.faults_room = room
    walk.faults[walk.faults_kept].index = walk.index
    walk.faults[walk.faults_kept].fault = fault
    walk.faults[walk.faults_kept].timestamp = timestamp
    walk.faults_kept += 1


cdef Step walk_records(Walk *walk, const uint8_t **cursor, const uint8_t *end) noexcept nogil:
    cdef RecordView record
    cdef Step step
    cdef int64_t timestamp
    while walk.index < walk.count:
        step = read_record(cursor[0], end, &record, &walk.missing)
        if step != STEP_DONE:
            return step
        cursor[0] = record.end
        timestamp = timestamp_of(walk, &record)
        if record.offset_delta != walk.index:
            walk.offsets_in_order = False
        # The order and the exclusions are those of Kafka's LogValidator.validateRecord.
        if walk.need_keys and record.key == NULL:
            _remember(walk, FAULT_NO_KEY, timestamp)
        elif walk.check_window and timestamp != -1:
            if timestamp < walk.earliest or timestamp > walk.latest:
                _remember(walk, FAULT_TIMESTAMP, timestamp)
        elif walk.refuse_append_time:
            _remember(walk, FAULT_APPEND_TIME, timestamp)
        if timestamp > walk.max_timestamp:
            walk.max_timestamp = timestamp
        walk.index += 1
    return STEP_DONE


cdef void begin_walk(Walk *walk, BatchHeader header) noexcept:
    walk.count = header.count
    walk.base_timestamp = header.base_timestamp
    walk.append_time = header.timestamp_type != 0
    walk.append_timestamp = header.max_timestamp


cdef object _text(const uint8_t *start, int32_t length):
    # A header's key should be UTF-8; surrogateescape preserves the other bytes too.
    return (<const char *>start)[:length].decode("utf-8", "surrogateescape")


cdef tuple _decode_headers(const RecordView *record):
    cdef const uint8_t *at = record.headers
    cdef const uint8_t *start
    cdef int32_t length, i
    cdef list headers = []
    for i in range(record.header_count):
        if not _bytes(&at, record.end, &start, &length) or start == NULL:
            raise CorruptRecords("a header has no key")
        key = _text(start, length)
        if not _bytes(&at, record.end, &start, &length):
            raise CorruptRecords("a header extends beyond its record")
        headers.append((key, None if start == NULL else (<const char *>start)[:length]))
    return tuple(headers)


def decode_records(payload, BatchHeader header, kind=tuple) -> list:
    """Decode all records of a batch from its decompressed payload.

    Each becomes kind((offset, timestamp, key, value, headers, sequence)): `kind` is tuple or a subclass such as a
    NamedTuple. key and value are bytes or None, headers a tuple of (str, bytes or None); sequence is -1 if the batch
    has none. Raises CorruptRecords if the payload is not exactly `count` records.
    """
    return _decoded(payload, header, kind, None, None, LEAST)


def decode_records_of(payload, BatchHeader header, kind, topic not None, partition, int64_t position) -> list:
    """Decode the records from offset `position` on; each becomes
    kind((topic, partition, offset, timestamp, key, value, headers)). Raises as decode_records."""
    return _decoded(payload, header, kind, topic, partition, position)


# With a topic, the tuples begin with topic and partition; without one, they end with the sequence.
cdef list _decoded(payload, BatchHeader header, kind, topic, partition, int64_t position):
    cdef Py_buffer held
    cdef Walk walk
    cdef RecordView record
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t missing = 0, offset
    cdef int32_t i
    cdef Step step
    cdef list records = []
    cdef bint numbered = header.base_sequence >= 0
    begin_walk(&walk, header)
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        if header.count < 0:
            raise CorruptRecords(f"the batch declares {header.count} records")
        at = <const uint8_t *>held.buf
        end = at + held.len
        for i in range(header.count):
            step = read_record(at, end, &record, &missing)
            if step != STEP_DONE:
                raise CorruptRecords(explain(step, i, missing))
            at = record.end
            offset = header.base_offset + record.offset_delta
            if offset < position:
                continue
            timestamp = timestamp_of(&walk, &record)
            key = None if record.key == NULL else (<const char *>record.key)[:record.key_length]
            value = None if record.value == NULL else (<const char *>record.value)[:record.value_length]
            headers = () if record.header_count == 0 else _decode_headers(&record)
            if topic is None:
                sequence = (<int64_t>header.base_sequence + record.offset_delta) & 0x7FFFFFFF if numbered else -1
                fields = (offset, timestamp, key, value, headers, sequence)
            else:
                fields = (topic, partition, offset, timestamp, key, value, headers)
            # Not kind(...): calling a NamedTuple takes longer than all other work in this loop.
            records.append(fields if kind is tuple else tuple.__new__(kind, fields))
        if at != end:
            raise CorruptRecords(f"{end - at} bytes are left after the {header.count} records")
        return records
    finally:
        PyBuffer_Release(&held)


def find_timestamp(payload, BatchHeader header, int64_t timestamp, int64_t min_offset=0) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with at least this timestamp and offset, or None.

    `payload` is decompressed. With the batch's max_timestamp as the timestamp, this finds the record that has it.
    Raises CorruptRecords.
    """
    cdef Py_buffer held
    cdef Walk walk
    cdef RecordView record
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t missing = 0, offset = 0, here = 0, base_offset = header.base_offset
    cdef int32_t i = 0, count = header.count
    cdef Step step = STEP_DONE
    cdef bint found = False
    begin_walk(&walk, header)
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>held.buf
        end = at + held.len
        with nogil:
            while i < count:
                step = read_record(at, end, &record, &missing)
                if step != STEP_DONE:
                    break
                at = record.end
                here = timestamp_of(&walk, &record)
                offset = base_offset + record.offset_delta
                if here >= timestamp and offset >= min_offset:
                    found = True
                    break
                i += 1
        if step != STEP_DONE:
            raise CorruptRecords(explain(step, i, missing))
        return (offset, here) if found else None
    finally:
        PyBuffer_Release(&held)
