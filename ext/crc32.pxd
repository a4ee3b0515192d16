# CRC-32 (IEEE 802.3, that of zlib) for other extension modules: no Python object, no interpreter needed.
#
# `before` is the checksum of the bytes that come before (0 at the start), so that data in pieces can be summed.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc_of(uint32_t before, const uint8_t *data, size_t length) noexcept nogil
