"""The records inside a batch of format 2: walking over them in C, decoding them for Python, encoding them.

The layout is that of Kafka's DefaultRecord (KIP-98). What is read here is decompressed memory; nothing is
believed about it: every length is checked against what is there before it is used.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from kafkapy._ext.batch cimport BatchHeader
from kafkapy._ext.cursor cimport Writer
from kafkapy._ext.varint cimport (
    VARINT_SHORT, get_varint32, get_varint64, put_uvarint32, put_uvarint64, size_of_varint, zigzag32, zigzag64,
)

cdef enum:
    MAX_BODY = 0x7FFFFFFF
    SMALLEST_RECORD = 7         # seven fields of a byte each


class CorruptRecords(ValueError):
    """The records of a batch are not what its header says, or are no records; the message says where and why."""


cdef inline bint _varint(const uint8_t **at, const uint8_t *end, int32_t *out) noexcept nogil:
    cdef int taken = get_varint32(at[0], end, out)
    if taken <= 0:
        return False
    at[0] += taken
    return True


# A length and that many bytes; a negative length leaves `start` NULL and `length` 0.
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
        return f"record {index} has a length that is negative or no varint"
    if step == STEP_CUT:
        return f"record {index} has a field that is no varint or goes beyond the record's length"
    if step == STEP_HEADER_COUNT:
        return f"record {index} has a number of headers that is negative or larger than the record"
    if step == STEP_HEADER_KEY:
        return f"record {index} has a header without a key"
    return f"record {index} goes on after its last field"


# Timestamps wrap like Java's: a delta is added to a base without looking whether the sum fits.
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
            return              # counted, so the batch is refused all the same
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


cdef void _begin_walk(Walk *walk, BatchHeader header) noexcept:
    walk.count = header.count
    walk.base_timestamp = header.base_timestamp
    walk.append_time = header.timestamp_type != 0
    walk.append_timestamp = header.max_timestamp


cdef object _text(const uint8_t *start, int32_t length):
    # A header's key should be UTF-8; what is not survives a round trip all the same.
    return (<const char *>start)[:length].decode("utf-8", "surrogateescape")


cdef tuple _decode_headers(const RecordView *record):
    cdef const uint8_t *at = record.headers
    cdef const uint8_t *start
    cdef int32_t length, i
    cdef list headers = []
    for i in range(record.header_count):
        if not _bytes(&at, record.end, &start, &length) or start == NULL:
            raise CorruptRecords("a header without a key")
        key = _text(start, length)
        if not _bytes(&at, record.end, &start, &length):
            raise CorruptRecords("a header that is cut")
        headers.append((key, None if start == NULL else (<const char *>start)[:length]))
    return tuple(headers)


def decode_records(payload, BatchHeader header, kind=tuple) -> list:
    """Decode all records of a batch from its decompressed payload.

    Each is made as kind((offset, timestamp, key, value, headers, sequence)): `kind` is tuple or a subclass of it
    such as a NamedTuple. key and value are bytes or None, headers a tuple of (str, bytes or None); sequence is -1
    where the batch has none. Raises CorruptRecords when the payload is not exactly the `count` records.
    """
    cdef Py_buffer held
    cdef Walk walk
    cdef RecordView record
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t missing = 0
    cdef int32_t i
    cdef Step step
    cdef list records = []
    cdef bint numbered = header.base_sequence >= 0
    _begin_walk(&walk, header)
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
            fields = (
                header.base_offset + record.offset_delta,
                timestamp_of(&walk, &record),
                None if record.key == NULL else (<const char *>record.key)[:record.key_length],
                None if record.value == NULL else (<const char *>record.value)[:record.value_length],
                () if record.header_count == 0 else _decode_headers(&record),
                (<int64_t>header.base_sequence + record.offset_delta) & 0x7FFFFFFF if numbered else -1,
            )
            records.append(fields if kind is tuple else tuple.__new__(kind, fields))
        if at != end:
            raise CorruptRecords(f"{end - at} bytes are left after the {header.count} records")
        return records
    finally:
        PyBuffer_Release(&held)


def find_timestamp(payload, BatchHeader header, int64_t timestamp, int64_t min_offset=0) -> tuple[int, int] | None:
    """Find the first record with at least this timestamp and at least this offset: (offset, timestamp) or None.

    `payload` is decompressed. With the batch's max_timestamp as the timestamp it finds the record that has it.
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
    _begin_walk(&walk, header)
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
    _begin_walk(&walk, header)
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
