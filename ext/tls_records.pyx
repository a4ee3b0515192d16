"""Finds the whole TLS records in received bytes: 5 bytes (type, version 3.x, length), then as many bytes as the length.

In C because some clients send many records that are very short: librdkafka sends two for a message of 1 KiB.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from kafkapy._ext.cursor cimport load16

cdef enum:
    HEADER = 5
    FIRST_TYPE = 20  # change_cipher_spec
    LAST_TYPE = 24  # heartbeat
    MAJOR_VERSION = 3


def whole_records(data not None, Py_ssize_t most, Py_ssize_t longest):
    """Return (size, count) of the first whole records in `data`: one, or as many as have `most` bytes together.

    Return (position, -1) if at that position there is no record header, or not the beginning of one, or if a record has
    more than `longest` bytes.
    """
    cdef Py_buffer held
    cdef const uint8_t *at
    cdef Py_ssize_t position = 0, left, length
    cdef Py_ssize_t count = 0
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        while True:
            at = <const uint8_t *>held.buf + position
            left = held.len - position
            if left > 0 and not FIRST_TYPE <= at[0] <= LAST_TYPE or left > 1 and at[1] != MAJOR_VERSION:
                return position, -1
            if left < HEADER:
                break
            length = load16(at + 3)
            if length > longest:
                return position, -1
            if length > left - HEADER or count and length > most - HEADER - position:
                break
            position += HEADER + length
            count += 1
    finally:
        PyBuffer_Release(&held)
    return position, count
