"""Java's hash codes (`String.hashCode`, `Arrays.hashCode(byte[])`): Kafka's original producer chooses partitions by
them, and its original consumer orders what it assigns by them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ


def hash_of_bytes(data) -> int:
    """Return `Arrays.hashCode` of a bytes-like object."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        return array_hash(<const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)


def hash_of_string(str text not None) -> int:
    """Return `String.hashCode` of a string; Java counts UTF-16 units."""
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef void *data = PyUnicode_DATA(text)
    cdef uint32_t h = 0
    cdef uint32_t unit
    cdef Py_ssize_t i
    for i in range(length):
        unit = PyUnicode_READ(kind, data, i)
        if unit > 0xFFFF:
            h = 31 * h + (0xD800 + ((unit - 0x10000) >> 10))
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF)
        h = 31 * h + unit
    return <int32_t>h
