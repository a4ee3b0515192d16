"""Whether bytes are UTF-8, in C; see utf8.pxd."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
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


def is_valid(data) -> bool:
    """Whether Python would decode it, strictly."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        return utf8_is_valid(<const uint8_t *>held.buf, <const uint8_t *>held.buf + held.len)
    finally:
        PyBuffer_Release(&held)
