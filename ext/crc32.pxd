# CRC-32 (IEEE 802.3, as in zlib) for other extension modules.
#
# `before` is the CRC of the bytes before `data` (0: none), so that data in pieces can be checked.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc_of(uint32_t before, const uint8_t *data, size_t length) noexcept nogil
