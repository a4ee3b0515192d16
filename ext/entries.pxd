# The entries of a log, whatever their format: batches of format 2, messages and wrappers of formats 0 and 1.

from libc.stdint cimport int64_t, uint8_t

from kafkapy._ext.batch cimport Look

# What `batch.look` says, for all three formats; LOOK_BAD_MAGIC: the magic is none of 0, 1, 2.
cdef Look look_entry(const uint8_t *at, Py_ssize_t left, int64_t *size) noexcept nogil

# Whether the checksum of a whole entry of `size` bytes is right.
cdef bint entry_crc_matches(const uint8_t *at, int64_t size) noexcept nogil
