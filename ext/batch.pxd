# Record batch, format 2: its 61-byte header, looked at only after 61 bytes are known to be there.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

# Where the fields lie. The CRC covers everything from the attributes on, so base offset and leader epoch can be
# set without touching it.
cdef enum:
    AT_BASE_OFFSET = 0          # int64
    AT_LENGTH = 8               # int32, bytes after this field
    AT_LEADER_EPOCH = 12        # int32
    AT_MAGIC = 16               # int8, always 2 here
    AT_CRC = 17                 # uint32, CRC-32C
    AT_ATTRIBUTES = 21          # int16, see below
    AT_LAST_OFFSET_DELTA = 23   # int32
    AT_BASE_TIMESTAMP = 27      # int64, milliseconds; the delete horizon when that bit is set
    AT_MAX_TIMESTAMP = 35       # int64, milliseconds
    AT_PRODUCER_ID = 43         # int64, -1: none
    AT_PRODUCER_EPOCH = 51      # int16, -1: none
    AT_BASE_SEQUENCE = 53       # int32, -1: none
    AT_COUNT = 57               # int32, records
    HEADER_SIZE = 61            # first byte of the records
    LENGTH_END = 12             # what AT_LENGTH does not count
    LEAST_LENGTH = 14           # the smallest length any format has (format 0)

cdef enum:
    CODEC_BITS = 0x07
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    KNOWN_BITS = 0x7F           # Kafka keeps no others when it writes attributes

# What `look` finds at a place where a batch should begin.
cdef enum Look:
    LOOK_WHOLE = 0              # a whole batch
    LOOK_PARTIAL = 1            # the bytes end inside the batch (or inside its header, or there are none)
    LOOK_BAD_SIZE = 2           # the length is too small to be one
    LOOK_BAD_MAGIC = 3          # another format

# `size` is set (to the whole batch, with the 12 bytes before it) when the answer is WHOLE, and else whenever the
# length is readable. Nothing but length, magic and presence is checked.
cdef Look look(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil

# Whether the CRC of a whole batch of `size` bytes is right.
cdef bint crc_matches(const uint8_t *at, Py_ssize_t size) noexcept nogil

# The CRC of a whole batch, made anew and stored.
cdef void store_crc(uint8_t *at, Py_ssize_t size) noexcept nogil

# The last of the sequence numbers that begin at `base` (they wrap from 2^31 - 1 to 0); -1 for none.
cdef int32_t sequence_after(int32_t base, int32_t increment) noexcept nogil


@cython.final
@cython.freelist(64)
cdef class BatchHeader:
    cdef readonly Py_ssize_t position       # where the batch begins in the buffer it was read from
    cdef readonly int64_t base_offset
    cdef readonly int64_t size              # the whole batch, bytes
    cdef readonly int32_t leader_epoch
    cdef readonly int8_t magic
    cdef readonly uint32_t crc              # as stored
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t count


# A header from memory that holds at least HEADER_SIZE bytes.
cdef BatchHeader header_at(const uint8_t *at, Py_ssize_t position)
