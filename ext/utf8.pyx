"""Checks whether bytes are UTF-8; see utf8.pxd."""

from libc.string cimport memcpy


cdef bint utf8_is_valid(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef uint64_t word
    cdef int length
    while at < end:
        while end - at >= 8:
            memcpy(&word, at, 8)
            if word & <uint64_t>0x8080808080808080:
                break
            at += 8
        if at == end:
            break
        length = utf8_length(at, end)
        if length == 0:
            return False
        at += length
    return True
