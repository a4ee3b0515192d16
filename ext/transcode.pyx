"""Converts records from one message format to another, without Python objects for records.

A conversion is two passes over the decompressed records: the first checks and measures, the second writes. The bytes
are those that Kafka's MemoryRecordsBuilder writes for the format. Users: kafkapy.record.conversion (for old consumers)
and kafkapy.record.validation (for old producers and old topics).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int8_t, uint64_t
from libc.string cimport memcpy, memset

from kafkapy._ext.batch cimport (
    APPEND_TIME_BIT, AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_TIMESTAMP, AT_COUNT, AT_MAGIC, AT_MAX_TIMESTAMP, CODEC_BITS,
    CONTROL_BIT, HEADER_SIZE, LOOK_WHOLE, BatchHeader, Look,
)
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.entries cimport look_entry
from kafkapy._ext.legacy cimport (
    FOUND_CUT, FOUND_WHOLE, MSG_APPEND_TIME_BIT, MSG_ATTRIBUTES, MSG_CODEC_BITS, MSG_FIELDS_V0, Found, MessageHeader,
    MessageView, explain_message, message_size, put_message, read_message,
)
from kafkapy._ext.message_sets cimport (
    SET_VALID, begin_set, explain_set, measure_set, offset_in, timestamp_in,
)
from kafkapy._ext.records cimport STEP_DONE, STEP_LEFT_OVER, RecordView, begin_walk, explain, read_record, timestamp_of
from kafkapy._ext.varint cimport put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64

from kafkapy._ext.records import CorruptRecords

KEPT = OFFSETS_KEPT
RELATIVE = OFFSETS_RELATIVE
NUMBERED = OFFSETS_NUMBERED

cdef enum:
    # From this many bytes on, a conversion releases the GIL.
    RELEASE_FROM = 65536
    MAX_SIZE = 0x7FFFFFFF


# --- reading

cdef Next next_item(Source *source, Item *item) noexcept nogil:
    cdef RecordView record
    cdef MessageView view
    if source.kind == SOURCE_BATCH:
        if source.index == source.walk.count:
            source.step = STEP_LEFT_OVER
            return NEXT_END if source.at == source.end else NEXT_FAULT
        source.step = read_record(source.at, source.end, &record, &source.missing)
        if source.step != STEP_DONE:
            return NEXT_FAULT
        source.at = record.end
        item.offset = source.base_offset + record.offset_delta
        item.timestamp = timestamp_of(&source.walk, &record)
        item.key = record.key
        item.value = record.value
        item.key_length = record.key_length
        item.value_length = record.value_length
        item.header_count = record.header_count
    else:
        if source.kind == SOURCE_WRAPPER and source.index == source.inner.count:
            return NEXT_END
        if source.kind == SOURCE_MESSAGES and source.at == source.end:
            return NEXT_END
        source.found = read_message(source.at, source.end, &view, &source.missing)
        if source.found != FOUND_WHOLE:
            return NEXT_FAULT
        source.at = view.end
        if source.kind == SOURCE_WRAPPER:
            item.offset = offset_in(&source.inner, &view)
            item.timestamp = timestamp_in(&source.inner, &view)
        else:
            item.offset = view.offset
            item.timestamp = view.timestamp
        item.key = view.key
        item.value = view.value
        item.key_length = view.key_length
        item.value_length = view.value_length
        item.header_count = 0
    # In Kafka, the only timestamp before 1970 is -1 (none). A stored timestamp may be anything.
    if item.timestamp < -1:
        item.timestamp = -1
    source.index += 1
    return NEXT_ITEM


cdef object fault_of(const Source *source):
    if source.kind == SOURCE_BATCH:
        if source.step == STEP_LEFT_OVER and source.index == source.walk.count:
            return CorruptRecords(f"{source.end - source.at} bytes are left after the {source.walk.count} records")
        return CorruptRecords(explain(source.step, source.index, source.missing))
    if source.kind == SOURCE_WRAPPER and source.set_fault != SET_VALID:
        return CorruptRecords(explain_set(source.set_fault, &source.inner))
    return CorruptRecords(explain_message(source.found, f"message {source.index}", source.at, source.missing))


# --- writing

cdef inline int64_t _record_body(const Item *item, int64_t delta, int32_t index) noexcept nogil:
    cdef int64_t size = 1 + size_of_varint(delta) + size_of_varint(index) + 1
    size += 1 if item.key == NULL else size_of_varint(item.key_length) + item.key_length
    size += 1 if item.value == NULL else size_of_varint(item.value_length) + item.value_length
    return size


cdef inline uint8_t *_put_field(uint8_t *out, const uint8_t *start, int32_t length) noexcept nogil:
    if start == NULL:
        out[0] = 1                      # -1 in zig-zag encoding
        return out + 1
    out += put_uvarint32(out, zigzag32(length))
    memcpy(out, start, length)
    return out + length


cdef inline void _put_record(uint8_t *out, const Item *item, int64_t body, int64_t delta, int32_t index) noexcept nogil:
    out += put_uvarint32(out, zigzag32(<int32_t>body))
    out[0] = 0
    out += 1
    out += put_uvarint64(out, zigzag64(delta))
    out += put_uvarint32(out, zigzag32(index))
    out = _put_field(out, item.key, item.key_length)
    out = _put_field(out, item.value, item.value_length)
    out[0] = 0                          # no headers


cdef inline int64_t _write(const Item *item, const Target *target, uint8_t *out, const Tally *tally) noexcept nogil:
    cdef int64_t delta, body, offset
    if target.magic == 2:
        delta = <int64_t>(<uint64_t>item.timestamp - <uint64_t>tally.base_timestamp)
        body = _record_body(item, delta, tally.count)
        if out != NULL:
            _put_record(out, item, body, delta, tally.count)
        return body + size_of_varint(body)
    if out == NULL:
        return message_size(target.magic, item.key_length, item.value_length)
    offset = item.offset
    if target.offsets == OFFSETS_RELATIVE:
        offset -= tally.first_offset
    elif target.offsets == OFFSETS_NUMBERED:
        offset = tally.count
    return put_message(
        out, target.magic, offset, MSG_APPEND_TIME_BIT if target.magic and target.append_time else 0,
        target.append_timestamp if target.append_time else item.timestamp,
        item.key, item.key_length, item.value, item.value_length,
    )


cdef void begin_tally(Tally *tally) noexcept nogil:
    tally.size = 0
    tally.largest = 0
    tally.base_timestamp = -1
    tally.max_timestamp = -1
    tally.first_offset = 0
    tally.last_offset = -1
    tally.index_of_max = -1
    tally.count = 0
    tally.headers = False


cdef bint transcode(Source *source, const Target *target, uint8_t *out, Tally *tally) noexcept nogil:
    cdef Item item
    cdef Next found
    cdef int64_t timestamp, size
    while True:
        found = next_item(source, &item)
        if found != NEXT_ITEM:
            return found == NEXT_END
        if item.offset < target.first_offset:
            continue
        if tally.count == 0:
            tally.first_offset = item.offset
            tally.base_timestamp = item.timestamp
        size = _write(&item, target, NULL if out == NULL else out + tally.size, tally)
        tally.size += size
        tally.largest = max(tally.largest, size)
        timestamp = target.append_timestamp if target.append_time else item.timestamp
        if target.magic and timestamp > tally.max_timestamp:
            tally.max_timestamp = timestamp
            tally.index_of_max = tally.count
        tally.last_offset = item.offset
        tally.headers |= item.header_count != 0
        tally.count += 1


@cython.final
cdef class Converted:
    """Converted records.

    payload: messages, or the records of a batch without its header. largest: size of the largest one in bytes.
    first_offset, last_offset: as read. base_timestamp: the first record's. max_timestamp: the largest, -1 in format 0.
    index_of_max: index of the first record with it, -1 for none. headers: True if a record had headers, which formats 0
    and 1 cannot store.
    """


cdef Converted _convert(const Source *source, const Target *target, int64_t limit):
    cdef Converted made = Converted.__new__(Converted)
    cdef Source reading = source[0]
    cdef Tally tally
    cdef uint8_t *out
    cdef bint valid, release = source.end - source.at >= RELEASE_FROM
    begin_tally(&tally)
    if release:
        with nogil:
            valid = transcode(&reading, target, NULL, &tally)
    else:
        valid = transcode(&reading, target, NULL, &tally)
    if not valid:
        raise fault_of(&reading)
    if tally.size > MAX_SIZE or tally.size > limit:
        raise CorruptRecords(f"the records would have {tally.size} bytes in format {target.magic}, more than {limit}")
    made.payload = PyByteArray_FromStringAndSize(NULL, tally.size)
    out = <uint8_t *>PyByteArray_AS_STRING(made.payload)
    begin_tally(&tally)
    reading = source[0]
    if release:
        with nogil:
            transcode(&reading, target, out, &tally)
    else:
        transcode(&reading, target, out, &tally)
    made.largest = tally.largest
    made.count = tally.count
    made.first_offset = tally.first_offset
    made.last_offset = tally.last_offset
    made.base_timestamp = tally.base_timestamp
    made.max_timestamp = tally.max_timestamp
    made.index_of_max = tally.index_of_max
    made.headers = tally.headers
    return made


cdef int _open_batch(Source *source, BatchHeader header, const Py_buffer *held) except -1:
    if header.count < 0:
        raise CorruptRecords(f"the batch declares {header.count} records")
    source.kind = SOURCE_BATCH
    source.base_offset = header.base_offset
    begin_walk(&source.walk, header)
    return 0


cdef int _open_wrapper(Source *source, MessageHeader header, const Py_buffer *held) except -1:
    source.kind = SOURCE_WRAPPER
    begin_set(&source.inner, header.magic, header.attributes, header.offset, header.timestamp)
    with nogil:
        source.set_fault = measure_set(
            &source.inner, <const uint8_t *>held.buf, <const uint8_t *>held.buf + held.len
        )
    if source.set_fault != SET_VALID:
        raise fault_of(source)
    return 0


def convert_payload(
    payload,
    header,
    int magic,
    *,
    int offsets=OFFSETS_KEPT,
    int64_t first_offset=INT64_MIN,
    append_time=None,
    int64_t limit=MAX_SIZE,
) -> Converted:
    """Convert records to format `magic`: to messages, or for format 2 to the records of a batch.

    payload: the decompressed records of a batch or message set of a wrapper; `header` is the header of that batch or
        wrapper. If `header` is None: single messages of format 0 or 1.
    offsets: of messages: KEPT, RELATIVE to the first or NUMBERED from 0. Records of format 2 are numbered.
    first_offset: earlier records are dropped. append_time: if not None, the append time to set in all messages.
    limit: the most bytes of the converted records.

    Raises CorruptRecords.
    """
    cdef Py_buffer held
    cdef Source source
    cdef Target target
    if magic < 0 or magic > 2:
        raise ValueError(f"there is no message format {magic}")
    memset(&source, 0, sizeof(Source))
    target.magic = magic
    target.offsets = <Offsets>offsets
    target.first_offset = first_offset
    target.append_time = append_time is not None and magic < 2
    target.append_timestamp = append_time if target.append_time else -1
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        source.at = <const uint8_t *>held.buf
        source.end = source.at + held.len
        if header is None:
            source.kind = SOURCE_MESSAGES
        elif isinstance(header, BatchHeader):
            _open_batch(&source, header, &held)
        else:
            _open_wrapper(&source, header, &held)
        return _convert(&source, &target, limit)
    finally:
        PyBuffer_Release(&held)


# --- runs of entries

cdef enum Run:
    RUN_END             # no complete entry follows
    RUN_STOP            # the entry has to be decompressed
    RUN_FAULT           # the entry is invalid: see `source`


cdef inline int _codec_at(const uint8_t *at) noexcept nogil:
    if at[AT_MAGIC] == 2:
        return load16(at + AT_ATTRIBUTES) & CODEC_BITS
    return at[MSG_ATTRIBUTES] & MSG_CODEC_BITS


cdef void _open_entry(Source *source, const uint8_t *at, int64_t size, Target *target) noexcept nogil:
    """Open an uncompressed entry as a source, and set the target's timestamp type from it."""
    cdef bint append_time
    source.index = 0
    source.at = at
    source.end = at + size
    if at[AT_MAGIC] == 2:
        append_time = (load16(at + AT_ATTRIBUTES) & APPEND_TIME_BIT) != 0
        source.kind = SOURCE_BATCH
        source.at += HEADER_SIZE
        source.base_offset = <int64_t>load64(at + AT_BASE_OFFSET)
        source.walk.count = <int32_t>load32(at + AT_COUNT)
        source.walk.base_timestamp = <int64_t>load64(at + AT_BASE_TIMESTAMP)
        source.walk.append_time = append_time
        source.walk.append_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
    else:
        append_time = (at[MSG_ATTRIBUTES] & MSG_APPEND_TIME_BIT) != 0
        source.kind = SOURCE_MESSAGES
        source.walk.append_timestamp = <int64_t>load64(at + MSG_FIELDS_V0)
    target.append_time = append_time
    target.append_timestamp = max(source.walk.append_timestamp, -1)


cdef Run _run(const uint8_t **cursor, const uint8_t *end, Target *target, uint8_t *out, int64_t *total,
              Source *source) noexcept nogil:
    cdef const uint8_t *at
    cdef int64_t size = 0
    cdef Tally tally
    cdef Look seen
    while True:
        at = cursor[0]
        seen = look_entry(at, end - at, &size)
        if seen != LOOK_WHOLE:
            return RUN_END
        if at[AT_MAGIC] <= target.magic:
            if out != NULL:
                memcpy(out + total[0], at, size)
            total[0] += size
        elif at[AT_MAGIC] == 2 and load16(at + AT_ATTRIBUTES) & CONTROL_BIT:
            pass
        elif _codec_at(at):
            return RUN_STOP
        else:
            _open_entry(source, at, size, target)
            begin_tally(&tally)
            if not transcode(source, target, NULL if out == NULL else out + total[0], &tally):
                return RUN_FAULT
            total[0] += tally.size
        cursor[0] = at + size


def convert_run(buffer, Py_ssize_t position, int magic, int64_t first_offset) -> tuple[bytes, int]:
    """Convert entries for a client that supports formats up to `magic`, 0 or 1; return (entries, end of those read).

    Entries of such formats are copied, control batches are dropped, and uncompressed records become single messages
    with their offsets, except those before `first_offset`. Stops before the first entry that has to be decompressed, or
    is incomplete or invalid. Raises CorruptRecords if the first entry is invalid.
    """
    cdef Py_buffer held
    cdef Source source
    cdef Target target
    cdef const uint8_t *start
    cdef const uint8_t *stop
    cdef const uint8_t *at
    cdef int64_t size = 0, written = 0
    cdef Run why
    cdef bytes made
    cdef uint8_t *out
    if magic != 0 and magic != 1:
        raise ValueError(f"records are converted to format 0 or 1, not {magic}")
    memset(&source, 0, sizeof(Source))
    target.magic = magic
    target.offsets = OFFSETS_KEPT
    target.first_offset = first_offset
    target.append_time = False
    target.append_timestamp = -1
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if position < 0 or position > held.len:
            raise ValueError(f"byte {position} is outside of the {held.len} bytes")
        start = <const uint8_t *>held.buf + position
        at = start
        with nogil:
            why = _run(&at, <const uint8_t *>held.buf + held.len, &target, NULL, &size, &source)
        if why == RUN_FAULT and at == start:
            raise fault_of(&source)
        if size > MAX_SIZE:
            raise CorruptRecords(f"the records would have {size} bytes in format {magic}, more than {MAX_SIZE}")
        made = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t *>PyBytes_AS_STRING(made)
        stop = at
        at = start
        with nogil:
            _run(&at, stop, &target, out, &written, &source)
        return made, stop - <const uint8_t *>held.buf
    finally:
        PyBuffer_Release(&held)
