# UTF-8 in plain memory, as strict as the decoders of Python and Java: no overlong forms, no surrogates, nothing above
# U+10FFFF.

from libc.stdint cimport int64_t, uint8_t, uint64_t

# Return the number of bytes of the character at `at`, 1 to 4; 0 if it is not a valid, complete character. `at` must be
# before `end`.
cdef inline int utf8_length(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef uint8_t first = at[0], second
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4 or end - at < 2:
        return 0
    second = at[1]
    if first < 0xE0:
        return 2 if second & 0xC0 == 0x80 else 0
    if end - at < 3 or second & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        return 3
    if end - at < 4 or at[3] & 0xC0 != 0x80 or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4

# Return True if all bytes are valid UTF-8.
cdef bint utf8_is_valid(const uint8_t *at, const uint8_t *end) noexcept nogil
