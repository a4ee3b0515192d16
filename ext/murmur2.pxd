# Kafka's murmur2, which chooses the partition for a key, for other extension modules.

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef enum:
    MULTIPLIER = 0x5BD1E995
    KAFKA_SEED = 0x9747B28C
    POSITIVE = 0x7FFFFFFF


# Return the 32-bit hash of `length` bytes, read as little-endian words on every processor.
cdef inline uint32_t murmur2_of(const uint8_t *at, size_t length) noexcept nogil:
    cdef uint32_t h = <uint32_t>KAFKA_SEED ^ <uint32_t>length
    cdef uint32_t m = <uint32_t>MULTIPLIER
    cdef uint32_t k
    cdef size_t left = length
    while left >= 4:
        k = (<uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24) * m
        k = (k ^ k >> 24) * m
        h = (h * m) ^ k
        at += 4
        left -= 4
    if left:
        k = at[0]
        if left > 1:
            k |= <uint32_t>at[1] << 8
        if left > 2:
            k |= <uint32_t>at[2] << 16
        h = (h ^ k) * m
    h = (h ^ h >> 13) * m
    return h ^ h >> 15


# Return Kafka's default partition: the hash without its sign bit, modulo the number of partitions (at least 1).
cdef inline int32_t partition_for(const uint8_t *at, size_t length, int32_t partitions) noexcept nogil:
    return <int32_t>((murmur2_of(at, length) & <uint32_t>POSITIVE) % <uint32_t>partitions)
