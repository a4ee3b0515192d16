# Writes the messages of a set of format 0 or 1.

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.cursor cimport Writer


# Appends messages to a set; `payload` returns the uncompressed set, which is also the content of a wrapper.
@cython.final
cdef class MessagesEncoder:
    cdef Writer writer
    cdef readonly int magic
    cdef readonly int8_t attributes         # of every message
    cdef readonly int32_t count
    cdef readonly int64_t max_timestamp     # the largest so far; -1 in format 0
    cdef readonly int64_t last_offset       # as stored in the last message; -1: none yet

    cdef int put(self, int64_t offset, int64_t timestamp, const uint8_t *key, Py_ssize_t key_length,
                 const uint8_t *value, Py_ssize_t value_length) except -1
