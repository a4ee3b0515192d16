"""Writes the records of a batch of format 2: encodes records for a new batch, and renumbers those of a produced batch.

The layout is that of Kafka's DefaultRecord (KIP-98).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkapy._ext.batch cimport (
    AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_COUNT, AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH, AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, HEADER_SIZE,
    LENGTH_END, TRANSACTIONAL_BIT, BatchHeader, store_crc,
)
from kafkapy._ext.cursor cimport Writer, store16, store32, store64
from kafkapy._ext.records cimport (
    STEP_BAD_LENGTH, STEP_DONE, RecordView, Step, Walk, begin_walk, explain, read_record, timestamp_of,
)
from kafkapy._ext.varint cimport put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64

from kafkapy._ext.records import CorruptRecords

cdef enum:
    MAX_BODY = 0x7FFFFFFF
    SMALLEST_RECORD = 7         # bytes: seven fields of one byte each


def renumber(payload, BatchHeader header) -> tuple[bytes, int, int]:
    """Rewrite the records of a decompressed payload with the offset deltas 0, 1, 2 ..., no attributes, and timestamps
    relative to the first record's. Return (payload, base timestamp, largest timestamp, at least -1).

    A broker does this when it has to recompress a batch (Kafka's LogValidator rebuilds the batch). Raises
    CorruptRecords.
    """
    cdef Py_buffer held
    cdef Walk walk
    cdef RecordView record
    cdef Writer writer
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *tail
    cdef uint8_t *out
    cdef int64_t missing = 0, timestamp, base = -1, largest = -1, delta, body, whole
    cdef int32_t i = 0, count = header.count
    cdef Step step = STEP_DONE
    begin_walk(&walk, header)
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        if count < 0 or count > held.len // SMALLEST_RECORD:
            raise CorruptRecords(f"the batch declares {count} records in {held.len} bytes")
        # Only length, timestamp delta and offset delta can grow, to 5, 10 and 5 bytes.
        writer = Writer(held.len + <Py_ssize_t>count * 20)
        out = writer.data
        at = <const uint8_t *>held.buf
        end = at + held.len
        with nogil:
            while i < count:
                step = read_record(at, end, &record, &missing)
                if step != STEP_DONE:
                    break
                timestamp = timestamp_of(&walk, &record)
                if i == 0:
                    base = timestamp
                if timestamp > largest:
                    largest = timestamp
                delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base)
                # Key, value and headers are copied unchanged, from the key length on.
                tail = _after_offset(at)
                whole = record.end - tail
                body = 1 + size_of_varint(delta) + size_of_varint(i) + whole
                if body > MAX_BODY:
                    step = STEP_BAD_LENGTH
                    break
                out += put_uvarint32(out, zigzag32(<int32_t>body))
                out[0] = 0
                out += 1
                out += put_uvarint64(out, zigzag64(delta))
                out += put_uvarint32(out, zigzag32(i))
                memcpy(out, tail, whole)
                out += whole
                at = record.end
                i += 1
        if step != STEP_DONE:
            raise CorruptRecords(explain(step, i, missing))
        if at != end:
            raise CorruptRecords(f"{end - at} bytes are left after the {count} records")
        return PyBytes_FromStringAndSize(<char *>writer.data, out - writer.data), base, largest
    finally:
        PyBuffer_Release(&held)


# Return the position of the key length in a record that read_record has accepted.
cdef inline const uint8_t *_after_offset(const uint8_t *at) noexcept nogil:
    cdef int field = 0
    while field < 4:
        if field == 1:
            at += 1                     # attributes: one byte, not a varint
        else:
            while at[0] >= 0x80:
                at += 1
            at += 1
        field += 1
    return at


cdef inline int64_t _size_of_bytes(object data) except -2:
    cdef int64_t length
    if data is None:
        return 1
    length = len(data)
    return size_of_varint(length) + length


cdef int _put_bytes(Writer writer, object data) except -1:
    if data is None:
        return writer.put_varint(-1)
    writer.put_varint(<int32_t>len(data))
    if type(data) is bytes:
        return writer.put_bytes(<bytes>data)
    return writer.put_buffer(data)


cdef object _flat(object data):
    # len() of the result is its size in bytes.
    if data is None or type(data) is bytes or type(data) is bytearray:
        return data
    return memoryview(data).cast("B")


@cython.final
cdef class RecordsEncoder:
    """Encodes records for a batch. Timestamp deltas are relative to `base_timestamp` (default: the first record's)."""

    def __cinit__(self, base_timestamp=None, Py_ssize_t room=1024):
        self.writer = Writer(room)
        self.count = 0
        self.max_timestamp = -1
        self.last_offset_delta = -1
        self._base_known = base_timestamp is not None
        self.base_timestamp = base_timestamp if self._base_known else -1

    @property
    def size(self) -> int:
        """The bytes of all records so far, uncompressed and without the header."""
        return self.writer.size

    def append(self, int64_t timestamp, key, value, headers=(), offset_delta=None) -> None:
        """Append a record: key and value bytes-like or None, headers pairs of str (or bytes) and bytes or None.

        The default of `offset_delta` is that of the last record plus 1. Raises ValueError if the records would exceed
        2 GiB.
        """
        cdef int32_t offset = self.last_offset_delta + 1 if offset_delta is None else offset_delta
        cdef int64_t delta, body
        cdef Writer writer = self.writer
        if not self._base_known:
            self.base_timestamp = timestamp
            self._base_known = True
        delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_timestamp)
        key = _flat(key)
        value = _flat(value)
        pairs = [
            (name.encode("utf-8", "surrogateescape") if isinstance(name, str) else _flat(name), _flat(content))
            for name, content in headers
        ] if headers else ()
        body = 1 + size_of_varint(delta) + size_of_varint(offset) + _size_of_bytes(key) + _size_of_bytes(value)
        body += size_of_varint(len(pairs))
        for name, content in pairs:
            body += _size_of_bytes(name) + _size_of_bytes(content)
        if body > MAX_BODY - writer.size:
            raise ValueError(f"a record of {body} bytes after {writer.size} bytes exceeds the size of a batch")
        for name, _ in pairs:
            if name is None:
                raise ValueError("a header needs a key")
        writer.reserve(<Py_ssize_t>body + 5)
        writer.put_varint(<int32_t>body)
        writer.put_int8(0)
        writer.put_varlong(delta)
        writer.put_varint(offset)
        _put_bytes(writer, key)
        _put_bytes(writer, value)
        writer.put_varint(<int32_t>len(pairs))
        for name, content in pairs:
            _put_bytes(writer, name)
            _put_bytes(writer, content)
        self.count += 1
        self.last_offset_delta = offset
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def payload(self) -> bytes:
        """Return the records so far, uncompressed."""
        return self.writer.getvalue()


cdef inline int64_t _body_of(int32_t index, bytes key, bytes value) noexcept:
    cdef int64_t length = PyBytes_GET_SIZE(key), size
    size = 3 + size_of_varint(index) + size_of_varint(length) + length    # 3: attributes, timestamp delta, no headers
    length = PyBytes_GET_SIZE(value) if value is not None else -1
    return size + size_of_varint(length) + max(length, 0)


def coordinator_batch(
    list records not None,
    int64_t timestamp,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
) -> bytearray:
    """Return a complete uncompressed batch of (key, value) pairs with one timestamp; transactional if there is a
    producer.

    The bytes are the same as those of BatchBuilder. A coordinator's records need neither headers nor timestamps of
    their own. Keys are bytes, values bytes or None; there is at least one pair. Raises ValueError if they exceed a
    batch.
    """
    cdef int64_t size = HEADER_SIZE, body
    cdef int32_t i = 0, count = <int32_t>len(records)
    cdef bytes key, value
    cdef bytearray batch
    cdef uint8_t *start
    cdef uint8_t *at
    for key, value in records:
        if key is None:
            raise ValueError("a coordinator's record needs a key")
        body = _body_of(i, key, value)
        size += size_of_varint(body) + body
        i += 1
    if not count or size > MAX_BODY:
        raise ValueError(f"{count} records in {size} bytes cannot be one batch")
    batch = PyByteArray_FromStringAndSize(NULL, size)
    start = <uint8_t *>PyByteArray_AS_STRING(batch)
    store64(start + AT_BASE_OFFSET, 0)
    store32(start + AT_LENGTH, <uint32_t>(size - LENGTH_END))
    store32(start + AT_LEADER_EPOCH, <uint32_t>-1)
    start[AT_MAGIC] = 2
    store16(start + AT_ATTRIBUTES, <uint16_t>(TRANSACTIONAL_BIT if producer_id >= 0 else 0))
    store32(start + AT_LAST_OFFSET_DELTA, <uint32_t>(count - 1))
    store64(start + AT_BASE_TIMESTAMP, <uint64_t>timestamp)
    store64(start + AT_MAX_TIMESTAMP, <uint64_t>timestamp)
    store64(start + AT_PRODUCER_ID, <uint64_t>producer_id)
    store16(start + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
    store32(start + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
    store32(start + AT_COUNT, <uint32_t>count)
    at = start + HEADER_SIZE
    i = 0
    for key, value in records:
        at += put_uvarint32(at, zigzag32(<int32_t>_body_of(i, key, value)))
        at[0] = at[1] = 0                   # attributes, timestamp delta
        at += 2
        at += put_uvarint32(at, zigzag32(i))
        at = _put_whole(at, key)
        at = _put_whole(at, value)
        at[0] = 0                           # headers
        at += 1
        i += 1
    store_crc(start, size)
    return batch


cdef inline uint8_t *_put_whole(uint8_t *at, bytes data) noexcept:
    cdef Py_ssize_t length
    if data is None:
        return at + put_uvarint32(at, zigzag32(-1))
    length = PyBytes_GET_SIZE(data)
    at += put_uvarint32(at, zigzag32(<int32_t>length))
    memcpy(at, PyBytes_AS_STRING(data), length)
    return at + length
