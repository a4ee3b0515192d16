"""The messages of formats 0 and 1 as a consumer gets them: single ones, and those inside compressed wrappers.

The rules are those of Kafka 3.9's AbstractLegacyRecordBatch.DeepRecordsIterator. Offsets inside a wrapper of format 1
are relative to its first message, and the wrapper has the offset of its last message (0 means "unknown"; old versions
of librdkafka sent that). The append time of a wrapper applies to all its messages. A wrapper must not contain wrappers.
The input is decompressed memory and untrusted.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkapy._ext.legacy cimport (
    FOUND_PARTIAL, FOUND_WHOLE, MSG_APPEND_TIME_BIT, MSG_CODEC_BITS, MessageHeader, explain_message, read_message,
)

from kafkapy._ext.records import CorruptRecords


cdef void begin_set(InnerSet *inner, int8_t magic, int8_t attributes, int64_t offset, int64_t timestamp) noexcept nogil:
    inner.wrapper_offset = offset
    inner.wrapper_timestamp = timestamp
    inner.wrapper_magic = magic
    inner.append_time = magic != 0 and (attributes & MSG_APPEND_TIME_BIT) != 0
    inner.base = 0
    inner.last_inner = -1
    inner.fields = 0
    inner.count = 0


cdef SetFault measure_set(InnerSet *inner, const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef MessageView view
    while True:
        inner.found = read_message(at, end, &view, &inner.missing)
        if inner.found == FOUND_PARTIAL:
            break
        inner.fault_at = at
        if inner.found != FOUND_WHOLE:
            return SET_MESSAGE
        if view.attributes & MSG_CODEC_BITS:
            return SET_NESTED
        inner.last_inner = view.offset
        inner.fields += view.key_length + view.value_length
        inner.count += 1
        at = view.end
    if inner.count == 0:
        return SET_EMPTY
    if inner.wrapper_magic == 0 or inner.wrapper_offset == 0:
        return SET_VALID
    if inner.wrapper_offset < inner.last_inner:
        return SET_OFFSET
    inner.base = inner.wrapper_offset - inner.last_inner
    return SET_VALID


cdef str explain_set(SetFault fault, const InnerSet *inner):
    if fault == SET_MESSAGE:
        return explain_message(inner.found, f"message {inner.count} of the wrapper", inner.fault_at, inner.missing)
    if fault == SET_NESTED:
        return f"message {inner.count} of the wrapper is compressed too; a wrapper must not contain wrappers"
    if fault == SET_EMPTY:
        return "the wrapper has no messages"
    return (f"the wrapper has the offset {inner.wrapper_offset}, "
            f"but the relative offset of its last message is {inner.last_inner}")


cdef object _bytes_or_none(const uint8_t *start, int32_t length):
    return None if start == NULL else (<const char *>start)[:length]


cdef object _make(object kind, int64_t offset, int64_t timestamp, const MessageView *view):
    cdef tuple fields = (
        offset,
        timestamp,
        _bytes_or_none(view.key, view.key_length),
        _bytes_or_none(view.value, view.value_length),
        (),
        -1,
    )
    return fields if kind is tuple else tuple.__new__(kind, fields)


cdef int _read(const Py_buffer *held, MessageHeader header, MessageView *view) except -1:
    cdef const uint8_t *at
    cdef int64_t missing = 0
    cdef Found found
    if header.position > held.len:
        raise CorruptRecords(f"byte {header.position} is outside of the {held.len} bytes")
    at = <const uint8_t *>held.buf + header.position
    found = read_message(at, <const uint8_t *>held.buf + held.len, view, &missing)
    if found != FOUND_WHOLE:
        raise CorruptRecords(explain_message(found, f"the message at byte {header.position}", at, missing))
    return 0


def decode_message(buffer, MessageHeader header, kind=tuple):
    """Return the single message that `header` was read from: kind((offset, timestamp, key, value, (), -1)).

    The value of a wrapper is its compressed set. Raises CorruptRecords.
    """
    cdef Py_buffer held
    cdef MessageView view
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        _read(&held, header, &view)
        return _make(kind, view.offset, view.timestamp, &view)
    finally:
        PyBuffer_Release(&held)


cdef int _open(InnerSet *inner, MessageHeader header, const Py_buffer *held) except -1:
    cdef SetFault fault
    begin_set(inner, header.magic, header.attributes, header.offset, header.timestamp)
    with nogil:
        fault = measure_set(inner, <const uint8_t *>held.buf, <const uint8_t *>held.buf + held.len)
    if fault != SET_VALID:
        raise CorruptRecords(explain_set(fault, inner))
    return 0


def wrapper_value(buffer, MessageHeader header) -> tuple[int, int]:
    """Return where the compressed set of a wrapper begins and ends in `buffer`. Raises CorruptRecords."""
    cdef Py_buffer held
    cdef MessageView view
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        _read(&held, header, &view)
        if view.value == NULL:
            raise CorruptRecords(f"the wrapper at byte {header.position} has no value")
        return view.value - <const uint8_t *>held.buf, view.value - <const uint8_t *>held.buf + view.value_length
    finally:
        PyBuffer_Release(&held)


def decode_set(payload, MessageHeader header, kind=tuple) -> list:
    """Return the messages of a wrapper, decoded from its decompressed payload; each as `decode_message` returns it.

    Offsets and timestamps are those that a consumer gets. Raises CorruptRecords.
    """
    cdef Py_buffer held
    cdef InnerSet inner
    cdef MessageView view
    cdef int64_t missing = 0
    cdef int32_t i
    cdef list records = []
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        _open(&inner, header, &held)
        at = <const uint8_t *>held.buf
        for i in range(inner.count):
            read_message(at, <const uint8_t *>held.buf + held.len, &view, &missing)
            at = view.end
            records.append(_make(kind, offset_in(&inner, &view), timestamp_in(&inner, &view), &view))
        return records
    finally:
        PyBuffer_Release(&held)


def find_timestamp(payload, MessageHeader header, int64_t timestamp, int64_t min_offset=0) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first message with at least this timestamp and offset, or None.

    `payload` is the wrapper's decompressed set. Raises CorruptRecords.
    """
    cdef Py_buffer held
    cdef InnerSet inner
    cdef MessageView view
    cdef const uint8_t *at
    cdef int64_t missing = 0, offset = 0, here = 0
    cdef int32_t i = 0
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        _open(&inner, header, &held)
        at = <const uint8_t *>held.buf
        with nogil:
            while i < inner.count:
                read_message(at, <const uint8_t *>held.buf + held.len, &view, &missing)
                at = view.end
                here = timestamp_in(&inner, &view)
                offset = offset_in(&inner, &view)
                if here >= timestamp and offset >= min_offset:
                    break
                i += 1
        return (offset, here) if i < inner.count else None
    finally:
        PyBuffer_Release(&held)
