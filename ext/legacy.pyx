"""Messages of formats 0 and 1 (Kafka 0.8 to 0.10): the header of a message, and reading and writing one message.

Layout and meaning are those of Kafka's LegacyRecord and AbstractLegacyRecordBatch (KIP-31, KIP-32). An entry of such a
log is a single message or a compressed wrapper of several. Positions and sizes are in bytes, timestamps in
milliseconds.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from kafkapy._ext.crc32 cimport crc_of
from kafkapy._ext.cursor cimport load32, load64, store32, store64


cdef bint _bytes(const uint8_t **at, const uint8_t *end, const uint8_t **start, int32_t *length) noexcept nogil:
    """Read a length and that many bytes; a negative length sets `start` to NULL and `length` to 0."""
    start[0] = NULL
    if end - at[0] < 4:
        return False
    length[0] = <int32_t>load32(at[0])
    at[0] += 4
    if length[0] < 0:
        length[0] = 0
        return True
    if length[0] > end - at[0]:
        return False
    start[0] = at[0]
    at[0] += length[0]
    return True


cdef Found read_message(const uint8_t *at, const uint8_t *end, MessageView *view, int64_t *missing) noexcept nogil:
    cdef int64_t left = end - at
    cdef int32_t size
    if left < MSG_OVERHEAD:
        missing[0] = MSG_OVERHEAD - left
        return FOUND_PARTIAL
    size = <int32_t>load32(at + MSG_SIZE)
    if size < MSG_LEAST_V0:
        return FOUND_BAD_SIZE
    if left <= MSG_MAGIC:
        missing[0] = MSG_OVERHEAD + <int64_t>size - left
        return FOUND_PARTIAL
    view.magic = <int8_t>at[MSG_MAGIC]
    if view.magic != 0 and view.magic != 1:
        return FOUND_BAD_MAGIC
    if size < least_size(view.magic):
        return FOUND_BAD_SIZE
    view.size = MSG_OVERHEAD + <int64_t>size
    if view.size > left:
        missing[0] = view.size - left
        return FOUND_PARTIAL
    view.at = at
    view.end = at + view.size
    view.offset = <int64_t>load64(at)
    view.attributes = <int8_t>at[MSG_ATTRIBUTES]
    view.timestamp = <int64_t>load64(at + MSG_TIMESTAMP) if view.magic else -1
    at += MSG_FIELDS_V1 if view.magic else MSG_FIELDS_V0
    if not _bytes(&at, view.end, &view.key, &view.key_length):
        return FOUND_CUT
    if not _bytes(&at, view.end, &view.value, &view.value_length):
        return FOUND_CUT
    view.fields_end = at
    return FOUND_WHOLE


cdef bint message_crc_matches(const uint8_t *at, int64_t size) noexcept nogil:
    return load32(at + MSG_CRC) == crc_of(0, at + MSG_MAGIC, size - MSG_MAGIC)


cdef void store_message_crc(uint8_t *at, int64_t size) noexcept nogil:
    store32(at + MSG_CRC, crc_of(0, at + MSG_MAGIC, size - MSG_MAGIC))


cdef uint8_t *_put_bytes(uint8_t *at, const uint8_t *start, int32_t length) noexcept nogil:
    if start == NULL:
        store32(at, 0xFFFFFFFF)
        return at + 4
    store32(at, <uint32_t>length)
    memcpy(at + 4, start, length)
    return at + 4 + length


cdef int64_t put_message(
    uint8_t *at, int magic, int64_t offset, int8_t attributes, int64_t timestamp,
    const uint8_t *key, int32_t key_length, const uint8_t *value, int32_t value_length,
) noexcept nogil:
    cdef int64_t size = message_size(magic, key_length, value_length)
    cdef uint8_t *fields
    store64(at, <uint64_t>offset)
    store32(at + MSG_SIZE, <uint32_t>(size - MSG_OVERHEAD))
    at[MSG_MAGIC] = <uint8_t>magic
    at[MSG_ATTRIBUTES] = <uint8_t>attributes
    if magic:
        store64(at + MSG_TIMESTAMP, <uint64_t>timestamp)
    fields = at + (MSG_FIELDS_V1 if magic else MSG_FIELDS_V0)
    fields = _put_bytes(fields, key, key_length)
    _put_bytes(fields, value, value_length)
    store_message_crc(at, size)
    return size


cdef str explain_message(Found found, str place, const uint8_t *at, int64_t missing):
    if found == FOUND_PARTIAL:
        return f"the data ends at least {missing} bytes before the end of {place}"
    if found == FOUND_BAD_SIZE:
        return f"{place} has a size of {<int32_t>load32(at + MSG_SIZE)}, too small for a message"
    if found == FOUND_BAD_MAGIC:
        return f"{place} has magic {<int8_t>at[MSG_MAGIC]}, neither 0 nor 1"
    return f"{place} has a key or a value that extends beyond the message's end"


@cython.final
@cython.freelist(64)
cdef class MessageHeader:
    """The header of a message: its stored fields, and values derived from them.

    A MessageHeader has the attributes of a BatchHeader that make sense for a message. Leader epoch and producer id,
    which only batches have, are -1.
    """

    @property
    def last_offset(self) -> int:
        """The offset of the message; of a wrapper, the offset of its last inner message."""
        return self.offset

    @property
    def next_position(self) -> int:
        """The first byte after the message."""
        return self.position + self.size

    @property
    def max_timestamp(self) -> int:
        """The message's timestamp; of a wrapper, the largest timestamp of its messages; -1 in format 0."""
        return self.timestamp

    @property
    def codec(self) -> int:
        """The codec of the inner messages: 1 gzip, 2 snappy, 3 lz4; 0 for a single message (no wrapper)."""
        return self.attributes & MSG_CODEC_BITS

    @property
    def timestamp_type(self) -> int | None:
        """0 CreateTime: producers' timestamps; 1 LogAppendTime, in a wrapper for all its messages; None: format 0."""
        if self.magic == 0:
            return None
        return (self.attributes & MSG_APPEND_TIME_BIT) != 0

    @property
    def leader_epoch(self) -> int:
        """-1: these formats have no leader epoch."""
        return -1

    @property
    def producer_id(self) -> int:
        """-1: these formats have no producer id."""
        return -1

    @property
    def is_transactional(self) -> bool:
        return False

    @property
    def is_control(self) -> bool:
        return False

    def __repr__(self) -> str:
        return (
            f"MessageHeader(position={self.position}, offset={self.offset}, size={self.size}, magic={self.magic}, "
            f"codec={self.codec}, attributes={self.attributes:#x}, timestamp={self.timestamp}, crc={self.crc})"
        )


cdef MessageHeader message_header_at(const uint8_t *at, Py_ssize_t position):
    cdef MessageHeader header = MessageHeader.__new__(MessageHeader)
    header.position = position
    header.offset = <int64_t>load64(at)
    header.size = <int64_t><int32_t>load32(at + MSG_SIZE) + MSG_OVERHEAD
    header.crc = load32(at + MSG_CRC)
    header.magic = <int8_t>at[MSG_MAGIC]
    header.attributes = <int8_t>at[MSG_ATTRIBUTES]
    header.timestamp = <int64_t>load64(at + MSG_TIMESTAMP) if header.magic else -1
    return header
