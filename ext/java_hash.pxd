# Java's hash codes, as 32-bit numbers with sign: each unit is added to 31 times what was before.

from libc.stdint cimport int8_t, int32_t, uint8_t, uint32_t


# Arrays.hashCode of a byte[], whose elements have a sign.
cdef inline int32_t array_hash(const uint8_t *at, size_t length) noexcept nogil:
    cdef uint32_t h = 1
    cdef size_t i
    for i in range(length):
        h = 31 * h + <uint32_t><int32_t><int8_t>at[i]
    return <int32_t>h
