# The entries of a log of any format: batches of format 2, messages and wrappers of formats 0 and 1.

from libc.stdint cimport int64_t, uint8_t

from kafkapy._ext.batch cimport Look

# The same as `batch.look`, for all three formats; LOOK_BAD_MAGIC: the magic is not 0, 1 or 2.
cdef Look look_entry(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil

# Return True if the CRC of a complete entry of `size` bytes is correct.
cdef bint entry_crc_matches(const uint8_t *at, int64_t size) noexcept nogil
