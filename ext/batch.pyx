"""Record batches of format 2: their headers and their CRCs.

The layout is that of Kafka's DefaultRecordBatch (KIP-98). Positions and sizes are in bytes, timestamps in
milliseconds. A corrupt batch raises CorruptBatch, whose message has the values; `records` and `validation` read the
records inside a batch.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy

from kafkapy._ext.crc32c cimport crc_of
from kafkapy._ext.cursor cimport load16, load32, load64, store16, store32, store64

HEADER = HEADER_SIZE

# From this size on, checksums are computed without the GIL (16 KiB take half a microsecond).
cdef enum:
    RELEASE_FROM = 65536
    MAX_LENGTH = 0x7FFFFFFF


class CorruptBatch(ValueError):
    """The bytes are not a valid batch of format 2."""


class UnsupportedMagic(CorruptBatch):
    """The batch has another format: `magic` (0 and 1 are Kafka's older ones)."""

    def __init__(self, magic, position):
        super().__init__(f"the batch at byte {position} has magic {magic}, not 2")
        self.magic = magic


cdef Look look(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil:
    cdef int32_t length
    if left < LENGTH_END:
        return LOOK_PARTIAL
    length = <int32_t>load32(at + AT_LENGTH)
    size[0] = <int64_t>length + LENGTH_END
    if length < LEAST_LENGTH:
        return LOOK_BAD_SIZE
    if left <= AT_MAGIC:
        return LOOK_PARTIAL
    if at[AT_MAGIC] != 2:
        return LOOK_BAD_MAGIC
    if length < HEADER_SIZE - LENGTH_END:
        return LOOK_BAD_SIZE
    return LOOK_WHOLE if size[0] <= left else LOOK_PARTIAL


cdef bint crc_matches(const uint8_t *at, Py_ssize_t size) noexcept nogil:
    return load32(at + AT_CRC) == crc_of(0, at + AT_ATTRIBUTES, size - AT_ATTRIBUTES)


cdef void store_crc(uint8_t *at, Py_ssize_t size) noexcept nogil:
    store32(at + AT_CRC, crc_of(0, at + AT_ATTRIBUTES, size - AT_ATTRIBUTES))


cdef int32_t sequence_after(int32_t base, int32_t increment) noexcept nogil:
    if base < 0:
        return -1
    return <int32_t>((<int64_t>base + increment) & 0x7FFFFFFF)


@cython.final
@cython.freelist(64)
cdef class BatchHeader:
    """The header of a batch: its stored fields, and values derived from them."""

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_position(self) -> int:
        """The first byte after the batch."""
        return self.position + self.size

    @property
    def codec(self) -> int:
        """The compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are undefined."""
        return self.attributes & CODEC_BITS

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime: the producer's timestamps; 1 LogAppendTime: max_timestamp is every record's timestamp."""
        return (self.attributes & APPEND_TIME_BIT) != 0

    @property
    def is_transactional(self) -> bool:
        return (self.attributes & TRANSACTIONAL_BIT) != 0

    @property
    def is_control(self) -> bool:
        return (self.attributes & CONTROL_BIT) != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones and markers (stored as the base timestamp), or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 if the batch has none."""
        return sequence_after(self.base_sequence, self.last_offset_delta)

    def __repr__(self) -> str:
        return (
            f"BatchHeader(position={self.position}, offsets={self.base_offset}..{self.last_offset}, size={self.size}, "
            f"count={self.count}, codec={self.codec}, attributes={self.attributes:#x}, "
            f"leader_epoch={self.leader_epoch}, producer={self.producer_id}/{self.producer_epoch}, "
            f"base_sequence={self.base_sequence}, crc={self.crc})"
        )


cdef BatchHeader header_at(const uint8_t *at, Py_ssize_t position):
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    header.position = position
    header.base_offset = <int64_t>load64(at + AT_BASE_OFFSET)
    header.size = <int64_t><int32_t>load32(at + AT_LENGTH) + LENGTH_END
    header.leader_epoch = <int32_t>load32(at + AT_LEADER_EPOCH)
    header.magic = <int8_t>at[AT_MAGIC]
    header.crc = load32(at + AT_CRC)
    header.attributes = <int16_t>load16(at + AT_ATTRIBUTES)
    header.last_offset_delta = <int32_t>load32(at + AT_LAST_OFFSET_DELTA)
    header.base_timestamp = <int64_t>load64(at + AT_BASE_TIMESTAMP)
    header.max_timestamp = <int64_t>load64(at + AT_MAX_TIMESTAMP)
    header.producer_id = <int64_t>load64(at + AT_PRODUCER_ID)
    header.producer_epoch = <int16_t>load16(at + AT_PRODUCER_EPOCH)
    header.base_sequence = <int32_t>load32(at + AT_BASE_SEQUENCE)
    header.count = <int32_t>load32(at + AT_COUNT)
    return header


cdef str _why(Look seen, const uint8_t *at, Py_ssize_t left, int64_t size, Py_ssize_t position):
    if seen == LOOK_BAD_SIZE:
        return f"the batch at byte {position} has a length of {size - LENGTH_END}, too small for a batch"
    if seen == LOOK_BAD_MAGIC:
        return f"the batch at byte {position} has magic {<int8_t>at[AT_MAGIC]}, not 2"
    if left < LENGTH_END:
        return f"only {left} bytes at byte {position}, too few for a batch"
    return f"the batch at byte {position} has {size} bytes, but only {left} are there"


cdef object _refuse(Look seen, const uint8_t *at, Py_ssize_t left, int64_t size, Py_ssize_t position):
    if seen == LOOK_BAD_MAGIC:
        raise UnsupportedMagic(<int8_t>at[AT_MAGIC], position)
    raise CorruptBatch(_why(seen, at, left, size, position))


cdef int _hold(object buffer, Py_ssize_t position, Py_buffer *held) except -1:
    PyObject_GetBuffer(buffer, held, PyBUF_SIMPLE)
    if position < 0 or position > held.len:
        there = held.len
        PyBuffer_Release(held)
        raise CorruptBatch(f"byte {position} is outside of the {there} bytes")
    return 0


def read_header(buffer, Py_ssize_t position=0) -> BatchHeader:
    """Return the header at `position`; the records need not be there.

    Raises CorruptBatch if there are fewer than 61 bytes or the length is too small, UnsupportedMagic for another
    format.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef Py_ssize_t left
    cdef int64_t size = 0
    cdef Look seen
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        left = held.len - position
        seen = look(at, left, &size)
        if seen == LOOK_WHOLE or (seen == LOOK_PARTIAL and left >= HEADER_SIZE):
            return header_at(at, position)
        if seen == LOOK_PARTIAL:
            raise CorruptBatch(f"only {left} bytes at byte {position}; the header of a batch has {HEADER_SIZE}")
        return _refuse(seen, at, left, size, position)
    finally:
        PyBuffer_Release(&held)


def next_batch(buffer, Py_ssize_t position=0) -> BatchHeader | None:
    """Return the header of the batch at `position`, or None if the batch is incomplete or there are no bytes.

    Raises CorruptBatch or UnsupportedMagic for bytes that cannot begin a batch. Does not check the CRC.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef int64_t size = 0
    cdef Look seen
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        seen = look(at, held.len - position, &size)
        if seen == LOOK_WHOLE:
            return header_at(at, position)
        if seen == LOOK_PARTIAL:
            return None
        return _refuse(seen, at, held.len - position, size, position)
    finally:
        PyBuffer_Release(&held)


def check(buffer, Py_ssize_t position=0) -> BatchHeader:
    """Return the header of a batch that must be complete with a correct CRC. Raises CorruptBatch."""
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef int64_t size = 0
    cdef Look seen
    cdef bint right
    _hold(buffer, position, &held)
    try:
        at = <const uint8_t *>held.buf + position
        seen = look(at, held.len - position, &size)
        if seen != LOOK_WHOLE:
            return _refuse(seen, at, held.len - position, size, position)
        if size < RELEASE_FROM:
            right = crc_matches(at, size)
        else:
            with nogil:
                right = crc_matches(at, size)
        if not right:
            raise CorruptBatch(_wrong_crc(at, size, position))
        return header_at(at, position)
    finally:
        PyBuffer_Release(&held)


cdef str _wrong_crc(const uint8_t *at, Py_ssize_t size, Py_ssize_t position):
    cdef uint32_t computed = crc_of(0, at + AT_ATTRIBUTES, size - AT_ATTRIBUTES)
    return f"the batch at byte {position} has the CRC {load32(at + AT_CRC)}, but the CRC of its bytes is {computed}"


def assemble(
    payload,
    *,
    int32_t count,
    int16_t attributes=0,
    int64_t base_offset=0,
    int32_t leader_epoch=-1,
    int32_t last_offset_delta=-1,
    int64_t base_timestamp=-1,
    int64_t max_timestamp=-1,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
) -> bytes:
    """Return the batch of these already compressed records; last_offset_delta -1 means count - 1."""
    cdef Py_buffer held
    cdef bytes batch
    cdef uint8_t *at
    cdef Py_ssize_t size
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        if held.len > MAX_LENGTH - HEADER_SIZE:
            raise ValueError(f"{held.len} bytes of records exceed the size of a batch")
        size = HEADER_SIZE + held.len
        batch = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t *>PyBytes_AS_STRING(batch)
        store64(at + AT_BASE_OFFSET, <uint64_t>base_offset)
        store32(at + AT_LENGTH, <uint32_t>(size - LENGTH_END))
        store32(at + AT_LEADER_EPOCH, <uint32_t>leader_epoch)
        at[AT_MAGIC] = 2
        store16(at + AT_ATTRIBUTES, <uint16_t>attributes)
        store32(at + AT_LAST_OFFSET_DELTA, <uint32_t>(count - 1 if last_offset_delta < 0 else last_offset_delta))
        store64(at + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp)
        store64(at + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
        store64(at + AT_PRODUCER_ID, <uint64_t>producer_id)
        store16(at + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
        store32(at + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
        store32(at + AT_COUNT, <uint32_t>count)
        with nogil:
            memcpy(at + HEADER_SIZE, held.buf, held.len)
            store_crc(at, size)
        return batch
    finally:
        PyBuffer_Release(&held)


def seal(
    bytearray batch not None,
    *,
    int64_t producer_id=-1,
    int16_t producer_epoch=-1,
    int32_t base_sequence=-1,
    bint transactional=False,
) -> None:
    """Set the producer and the CRC in a batch that is otherwise complete."""
    cdef uint8_t *at = <uint8_t *>PyByteArray_AS_STRING(batch)
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(batch)
    cdef int64_t has = 0
    if look(at, size, &has) != LOOK_WHOLE or has != size:
        raise ValueError(f"these {size} bytes are not exactly one complete batch")
    store64(at + AT_PRODUCER_ID, <uint64_t>producer_id)
    store16(at + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
    store32(at + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
    if transactional:
        at[AT_ATTRIBUTES + 1] |= TRANSACTIONAL_BIT
    with nogil:
        store_crc(at, size)
