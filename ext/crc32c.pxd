# CRC-32C (Castagnoli) for other extension modules.
#
# `before` is the CRC of the bytes before `data` (0: none), so that data in pieces can be checked:
# crc_of(crc_of(0, a, len a), b, len b) is the CRC of a followed by b.

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc_of(uint32_t before, const uint8_t *data, size_t length) noexcept nogil
