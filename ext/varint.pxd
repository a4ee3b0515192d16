# Variable-length integers of the Kafka protocol (Kafka's ByteUtils; KIP-98 signed, KIP-482 unsigned), in plain memory.
# Everything here is inlined into the modules that cimport it.
#
# Each byte has seven bits of the number, the lowest first; the top bit is set on every byte except the last. Signed
# numbers are zig-zag encoded first (0, -1, 1, -2 ... become 0, 1, 2, 3 ...). An int32 takes at most 5 bytes, an int64
# at most 10.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    VARINT_MAX = 5          # bytes of the longest 32-bit number
    VARLONG_MAX = 10        # bytes of the longest 64-bit number
    VARINT_SHORT = 0        # result of get_*: the memory ends inside the number
    VARINT_BAD = -1         # result of get_*: the number is longer than VARINT_MAX (VARLONG_MAX) bytes


cdef inline uint32_t zigzag32(int32_t value) noexcept nogil:
    return (<uint32_t>value << 1) ^ (0 - (<uint32_t>value >> 31))


cdef inline int32_t unzigzag32(uint32_t raw) noexcept nogil:
    return <int32_t>((raw >> 1) ^ (0 - (raw & 1)))


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline int64_t unzigzag64(uint64_t raw) noexcept nogil:
    return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))


# The get_* functions return the number of bytes read, VARINT_SHORT or VARINT_BAD; `out` is set only on success.
# Bits above bit 31 (63) in the fifth (tenth) byte are ignored, as in Kafka's ByteUtils.
cdef inline int get_uvarint32(const uint8_t *at, const uint8_t *end, uint32_t *out) noexcept nogil:
    cdef uint32_t raw = 0
    cdef uint32_t byte
    cdef int taken = 0
    if at < end and at[0] < 0x80:
        out[0] = at[0]
        return 1
    while taken < VARINT_MAX:
        if end - at <= taken:
            return VARINT_SHORT
        byte = at[taken]
        raw |= (byte & 0x7F) << (7 * taken)
        taken += 1
        if byte < 0x80:
            out[0] = raw
            return taken
    return VARINT_BAD


cdef inline int get_uvarint64(const uint8_t *at, const uint8_t *end, uint64_t *out) noexcept nogil:
    cdef uint64_t raw = 0
    cdef uint64_t byte
    cdef int taken = 0
    if at < end and at[0] < 0x80:
        out[0] = at[0]
        return 1
    while taken < VARLONG_MAX:
        if end - at <= taken:
            return VARINT_SHORT
        byte = at[taken]
        raw |= (byte & 0x7F) << (7 * taken)
        taken += 1
        if byte < 0x80:
            out[0] = raw
            return taken
    return VARINT_BAD


cdef inline int get_varint32(const uint8_t *at, const uint8_t *end, int32_t *out) noexcept nogil:
    cdef uint32_t raw = 0
    cdef int taken = get_uvarint32(at, end, &raw)
    if taken > 0:
        out[0] = unzigzag32(raw)
    return taken


cdef inline int get_varint64(const uint8_t *at, const uint8_t *end, int64_t *out) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int taken = get_uvarint64(at, end, &raw)
    if taken > 0:
        out[0] = unzigzag64(raw)
    return taken


# The put_* functions need room for VARINT_MAX (VARLONG_MAX) bytes, and return the number of bytes written.
cdef inline int put_uvarint32(uint8_t *at, uint32_t raw) noexcept nogil:
    cdef int written = 0
    while raw >= 0x80:
        at[written] = <uint8_t>(raw | 0x80)
        raw >>= 7
        written += 1
    at[written] = <uint8_t>raw
    return written + 1


cdef inline int put_uvarint64(uint8_t *at, uint64_t raw) noexcept nogil:
    cdef int written = 0
    while raw >= 0x80:
        at[written] = <uint8_t>(raw | 0x80)
        raw >>= 7
        written += 1
    at[written] = <uint8_t>raw
    return written + 1


cdef inline int size_of_uvarint64(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


# Return how many bytes the zig-zag encoded number takes.
cdef inline int size_of_varint(int64_t value) noexcept nogil:
    return size_of_uvarint64(zigzag64(value))
