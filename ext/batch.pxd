# Record batches of format 2: the 61-byte header. It is read only after checking that 61 bytes are there.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

# Positions of the fields. The CRC covers everything from the attributes on, so base offset and leader epoch can be
# set without changing it.
cdef enum:
    AT_BASE_OFFSET = 0          # int64
    AT_LENGTH = 8               # int32, bytes after this field
    AT_LEADER_EPOCH = 12        # int32
    AT_MAGIC = 16               # int8, always 2 here
    AT_CRC = 17                 # uint32, CRC-32C
    AT_ATTRIBUTES = 21          # int16, see below
    AT_LAST_OFFSET_DELTA = 23   # int32
    AT_BASE_TIMESTAMP = 27      # int64, milliseconds; the delete horizon if that bit is set
    AT_MAX_TIMESTAMP = 35       # int64, milliseconds
    AT_PRODUCER_ID = 43         # int64, -1: none
    AT_PRODUCER_EPOCH = 51      # int16, -1: none
    AT_BASE_SEQUENCE = 53       # int32, -1: none
    AT_COUNT = 57               # int32, records
    HEADER_SIZE = 61            # first byte of the records
    LENGTH_END = 12             # the bytes that AT_LENGTH does not count
    LEAST_LENGTH = 14           # the smallest valid length of any format (format 0)

cdef enum:
    CODEC_BITS = 0x07
    APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    KNOWN_BITS = 0x7F           # the bits that Kafka keeps when it rewrites attributes

# The results of `look` at a position where a batch should begin.
cdef enum Look:
    LOOK_WHOLE = 0              # a complete batch
    LOOK_PARTIAL = 1            # the bytes end inside the batch (or inside its header, or there are none)
    LOOK_BAD_SIZE = 2           # the length is too small for a batch
    LOOK_BAD_MAGIC = 3          # another format

# Check length, magic and completeness of the batch at `at`, nothing else. `size` is set to the size of the whole
# batch, the first 12 bytes included, whenever the length could be read.
cdef Look look(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil

# Return True if the CRC of a complete batch of `size` bytes is correct.
cdef bint crc_matches(const uint8_t *at, Py_ssize_t size) noexcept nogil

# Compute and store the CRC of a complete batch.
cdef void store_crc(uint8_t *at, Py_ssize_t size) noexcept nogil

# Return the sequence number `increment` after `base`, wrapping from 2^31 - 1 to 0; -1 if `base` is -1.
cdef int32_t sequence_after(int32_t base, int32_t increment) noexcept nogil


@cython.final
@cython.freelist(64)
cdef class BatchHeader:
    cdef readonly Py_ssize_t position       # of the batch in the buffer it was read from
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


# Return the header at `at`, which must have at least HEADER_SIZE bytes.
cdef BatchHeader header_at(const uint8_t *at, Py_ssize_t position)
