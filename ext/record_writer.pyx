"""Writing the records of a batch of format 2: encoding them for a new batch, and renumbering those of a produced one.

The layout is that of Kafka's DefaultRecord (KIP-98).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from kafkapy._ext.batch cimport BatchHeader
from kafkapy._ext.cursor cimport Writer
from kafkapy._ext.records cimport (
    STEP_BAD_LENGTH, STEP_DONE, RecordView, Step, Walk, begin_walk, explain, read_record, timestamp_of,
)
from kafkapy._ext.varint cimport put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64

from kafkapy._ext.records import CorruptRecords

cdef enum:
    MAX_BODY = 0x7FFFFFFF
    SMALLEST_RECORD = 7         # seven fields of a byte each


def renumber(payload, BatchHeader header) -> tuple[bytes, int, int]:
    """Write the records of a decompressed payload anew: offset deltas 0, 1, 2 ..., no attributes, and timestamps
    relative to the first record's. Gives (payload, base timestamp, largest timestamp, at least -1).

    This is what a broker does when it has to compress a batch differently (Kafka's LogValidator builds it anew).
    Raises CorruptRecords.
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
        # Nothing but length, timestamp and offset can grow, to 5, 10 and 5 bytes.
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
                # Key, value and headers are taken over as they lie, from the key's length on.
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


# From the start of a record that read_record has accepted to its key's length.
cdef inline const uint8_t *_after_offset(const uint8_t *at) noexcept nogil:
    cdef int field = 0
    while field < 4:
        if field == 1:
            at += 1                     # attributes, one byte whatever its top bit
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
    # len() of a bytes-like object has to be its bytes.
    if data is None or type(data) is bytes or type(data) is bytearray:
        return data
    return memoryview(data).cast("B")


@cython.final
cdef class RecordsEncoder:
    """Encodes records for one batch. `base_timestamp` (default: the first record's) is what deltas are relative to."""

    def __cinit__(self, base_timestamp=None, Py_ssize_t room=1024):
        self.writer = Writer(room)
        self.count = 0
        self.max_timestamp = -1
        self.last_offset_delta = -1
        self._base_known = base_timestamp is not None
        self.base_timestamp = base_timestamp if self._base_known else -1

    @property
    def size(self) -> int:
        """Bytes of all records so far, uncompressed and without the header."""
        return self.writer.size

    def append(self, int64_t timestamp, key, value, headers=(), offset_delta=None) -> None:
        """Add a record: key and value bytes-like or None, headers pairs of str (or bytes) and bytes or None.

        `offset_delta` is one more than the last record's unless given. A record over 2 GiB is a ValueError.
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
            raise ValueError(f"a record of {body} bytes after {writer.size} is more than a batch can hold")
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
        """Give the records so far, uncompressed."""
        return self.writer.getvalue()
