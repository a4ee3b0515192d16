# Messages of formats 0 and 1 in plain memory (Kafka 0.8 to 0.10).
#
# A message set is a sequence of messages, each after its offset and size. A compressed message (the wrapper) has
# another message set as its value. The CRC-32 covers everything from the magic on, so the offset can be set without
# changing the CRC.

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

# The results of reading one message.
cdef enum Found:
    FOUND_WHOLE = 0
    FOUND_PARTIAL = 1           # the memory ends inside the message (`missing`: at least so many bytes more)
    FOUND_BAD_SIZE = 2          # the size is too small for the format
    FOUND_BAD_MAGIC = 3         # neither 0 nor 1
    FOUND_CUT = 4               # the key or value extends beyond the message

ctypedef struct MessageView:
    const uint8_t *at           # the first byte of the message, which is the first byte of its offset
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    const uint8_t *fields_end   # first byte after the value
    const uint8_t *end          # first byte after the message; Kafka allows bytes between fields_end and end
    int64_t offset              # as stored
    int64_t size                # with offset and size
    int64_t timestamp           # as stored; -1 in format 0
    int32_t key_length          # 0 when null
    int32_t value_length        # 0 when null
    int8_t magic
    int8_t attributes

# Return the smallest value that MSG_SIZE can have in a format.
cdef inline int32_t least_size(int magic) noexcept nogil:
    return MSG_LEAST_V0 if magic == 0 else MSG_LEAST_V1

# Read the message at `at`. If the result is FOUND_WHOLE, every length was checked; the CRC was not.
cdef Found read_message(const uint8_t *at, const uint8_t *end, MessageView *view, int64_t *missing) noexcept nogil

# Return True if the CRC of a complete message of `size` bytes is correct; compute and store it.
cdef bint message_crc_matches(const uint8_t *at, int64_t size) noexcept nogil
cdef void store_message_crc(uint8_t *at, int64_t size) noexcept nogil

# Return how many bytes a message has, offset and size included.
cdef inline int64_t message_size(int magic, int64_t key_length, int64_t value_length) noexcept nogil:
    return MSG_OVERHEAD + least_size(magic) + key_length + value_length

# Write a message (NULL key or value: null) and return its size in bytes. Format 0 has no timestamp.
cdef int64_t put_message(
    uint8_t *at, int magic, int64_t offset, int8_t attributes, int64_t timestamp,
    const uint8_t *key, int32_t key_length, const uint8_t *value, int32_t value_length,
) noexcept nogil

# Return the error message for a Found that is an error; `place` names the message.
cdef str explain_message(Found found, str place, const uint8_t *at, int64_t missing)


@cython.final
@cython.freelist(64)
cdef class MessageHeader:
    cdef readonly Py_ssize_t position       # where the message begins in the buffer it was read from
    cdef readonly int64_t offset            # as stored; in a wrapper, that of its last inner message
    cdef readonly int64_t size              # the whole message, offset and size included
    cdef readonly uint32_t crc              # as stored
    cdef readonly int8_t magic
    cdef readonly int8_t attributes
    cdef readonly int64_t timestamp         # as stored; in a wrapper, the largest of its messages; -1 in format 0


# Return the header at `at`, which must have at least MSG_FIELDS_V1 bytes (format 0: MSG_FIELDS_V0).
cdef MessageHeader message_header_at(const uint8_t *at, Py_ssize_t position)
