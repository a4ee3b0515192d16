# Messages of formats 0 and 1 in plain memory (Kafka 0.8 to 0.10).
#
# A message set is messages one after the other, each with its offset and its size before it. A compressed message
# (the wrapper) has another message set as its value. The CRC-32 covers everything from the magic on, so the offset
# can be set without touching it.

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    MSG_OFFSET = 0              # int64
    MSG_SIZE = 8                # int32, bytes after this field
    MSG_CRC = 12                # uint32, CRC-32
    MSG_MAGIC = 16              # int8, 0 or 1
    MSG_ATTRIBUTES = 17         # int8: codec in bits 0 to 2; format 1: bit 3 is the timestamp type
    MSG_TIMESTAMP = 18          # int64, milliseconds; format 1 only
    MSG_FIELDS_V0 = 18          # key length (int32, -1: null), key, value length, value
    MSG_FIELDS_V1 = 26
    MSG_OVERHEAD = 12           # offset and size, which the size does not count
    MSG_LEAST_V0 = 14           # smallest size: both key and value null
    MSG_LEAST_V1 = 22

cdef enum:
    MSG_CODEC_BITS = 0x07
    MSG_APPEND_TIME_BIT = 0x08

# What reading one message comes to.
cdef enum Found:
    FOUND_WHOLE = 0
    FOUND_PARTIAL = 1           # the memory ends inside the message (`missing` says by how many bytes at least)
    FOUND_BAD_SIZE = 2          # the size is too small for the format
    FOUND_BAD_MAGIC = 3         # neither 0 nor 1
    FOUND_CUT = 4               # key or value go beyond the message

ctypedef struct MessageView:
    const uint8_t *at           # the first byte, that of the offset
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    const uint8_t *fields_end   # first byte after the value
    const uint8_t *end          # first byte after the message; Kafka lets it lie behind fields_end
    int64_t offset              # as stored
    int64_t size                # with offset and size
    int64_t timestamp           # as stored; -1 in format 0
    int32_t key_length          # 0 when null
    int32_t value_length        # 0 when null
    int8_t magic
    int8_t attributes

# The smallest value that MSG_SIZE has in a format.
cdef inline int32_t least_size(int magic) noexcept nogil:
    return MSG_LEAST_V0 if magic == 0 else MSG_LEAST_V1

# Read the message at `at`; every length up to its end has been checked when the answer is FOUND_WHOLE, the
# checksum has not.
cdef Found read_message(const uint8_t *at, const uint8_t *end, MessageView *view, int64_t *missing) noexcept nogil

# The checksum of a whole message of `size` bytes: whether it is right, and made anew and stored.
cdef bint message_crc_matches(const uint8_t *at, int64_t size) noexcept nogil
cdef void store_message_crc(uint8_t *at, int64_t size) noexcept nogil

# How many bytes a message has, offset and size included.
cdef inline int64_t message_size(int magic, int64_t key_length, int64_t value_length) noexcept nogil:
    return MSG_OVERHEAD + least_size(magic) + key_length + value_length

# Write a message (NULL key or value: null) and give how many bytes it has. Format 0 has no place for a timestamp.
cdef int64_t put_message(
    uint8_t *at, int magic, int64_t offset, int8_t attributes, int64_t timestamp,
    const uint8_t *key, int32_t key_length, const uint8_t *value, int32_t value_length,
) noexcept nogil

# A sentence for a Found that is an error; `place` says which message it is about.
cdef str explain_message(Found found, str place, const uint8_t *at, int64_t missing)


@cython.final
@cython.freelist(64)
cdef class MessageHeader:
    cdef readonly Py_ssize_t position       # where the message begins in the buffer it was read from
    cdef readonly int64_t offset            # as stored: of a wrapper that of its last inner message
    cdef readonly int64_t size              # the whole message, offset and size included
    cdef readonly uint32_t crc              # as stored
    cdef readonly int8_t magic
    cdef readonly int8_t attributes
    cdef readonly int64_t timestamp         # as stored, of a wrapper its largest; -1 in format 0


# A header from memory that holds at least MSG_FIELDS_V1 bytes, or MSG_FIELDS_V0 for format 0.
cdef MessageHeader message_header_at(const uint8_t *at, Py_ssize_t position)
