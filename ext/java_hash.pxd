# Java's hash codes, as signed 32-bit numbers: for each unit, multiply by 31 and add the unit.

from libc.stdint cimport int8_t, int32_t, uint8_t, uint32_t


# Return Arrays.hashCode of a byte[], whose elements are signed.
cdef inline int32_t array_hash(const uint8_t *at, size_t length) noexcept nogil:
    cdef uint32_t h = 1
    cdef size_t i
    for i in range(length):
        h = 31 * h + <uint32_t><int32_t><int8_t>at[i]
    return <int32_t>h
