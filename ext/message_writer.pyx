"""Writes messages of formats 0 and 1: message sets, and the wrapper around a compressed set.

The bytes are those of Kafka 3.9's MemoryRecordsBuilder.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from kafkapy._ext.cursor cimport Writer
from kafkapy._ext.legacy cimport MSG_APPEND_TIME_BIT, MSG_CODEC_BITS, message_size, put_message

cdef enum:
    MAX_SIZE = 0x7FFFFFFF


cdef int _check_magic(int magic) except -1:
    if magic != 0 and magic != 1:
        raise ValueError(f"messages have format 0 or 1, not {magic}")
    return 0


cdef int8_t _attributes(int magic, int codec, int timestamp_type) noexcept nogil:
    return <int8_t>(codec & MSG_CODEC_BITS | (MSG_APPEND_TIME_BIT if magic and timestamp_type else 0))


cdef const uint8_t *_hold(object data, Py_buffer *held) except? NULL:
    """Return the address of a buffer's bytes; NULL for None, which needs no release."""
    held.len = 0
    if data is None:
        return NULL
    PyObject_GetBuffer(data, held, PyBUF_SIMPLE)
    # An empty buffer may have the address NULL, which here would mean null.
    return <const uint8_t *>held.buf if held.buf != NULL else <const uint8_t *>b""


@cython.final
cdef class MessagesEncoder:
    """Writes messages of one format, all with the same timestamp type."""

    def __cinit__(self, int magic, int timestamp_type=0, Py_ssize_t room=1024):
        _check_magic(magic)
        self.writer = Writer(room)
        self.magic = magic
        self.attributes = _attributes(magic, 0, timestamp_type)
        self.count = 0
        self.max_timestamp = -1
        self.last_offset = -1

    @property
    def size(self) -> int:
        """The bytes of all messages so far."""
        return self.writer.size

    def append(self, int64_t offset, int64_t timestamp, key, value) -> None:
        """Append a message. `offset` is stored unchanged; key and value are bytes-like or None."""
        cdef Py_buffer held_key, held_value
        cdef const uint8_t *key_at = _hold(key, &held_key)
        cdef const uint8_t *value_at
        try:
            value_at = _hold(value, &held_value)
            try:
                self.put(offset, timestamp, key_at, held_key.len, value_at, held_value.len)
            finally:
                if value is not None:
                    PyBuffer_Release(&held_value)
        finally:
            if key is not None:
                PyBuffer_Release(&held_key)

    cdef int put(self, int64_t offset, int64_t timestamp, const uint8_t *key, Py_ssize_t key_length,
                 const uint8_t *value, Py_ssize_t value_length) except -1:
        cdef int64_t size = message_size(self.magic, key_length, value_length)
        if size > MAX_SIZE - self.writer.size:
            raise ValueError(f"a message of {size} bytes after {self.writer.size} bytes exceeds the size of a set")
        put_message(
            self.writer.extend(size), self.magic, offset, self.attributes, timestamp,
            key, <int32_t>key_length, value, <int32_t>value_length,
        )
        self.count += 1
        self.last_offset = offset
        if self.magic and timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return 0

    def payload(self) -> bytes:
        """Return the messages so far."""
        return self.writer.getvalue()


def wrap(payload, int magic, int codec, int64_t offset, int64_t timestamp=-1, int timestamp_type=0) -> bytes:
    """Return the wrapper of an already compressed message set.

    offset: that of the last message. timestamp: the largest of the messages, or the append time.
    """
    cdef Py_buffer held
    cdef bytes made
    cdef uint8_t *at
    cdef int64_t size
    _check_magic(magic)
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        size = message_size(magic, 0, held.len)
        if size > MAX_SIZE:
            raise ValueError(f"{held.len} bytes exceed the size of a wrapper")
        made = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t *>PyBytes_AS_STRING(made)
        with nogil:
            put_message(
                at, magic, offset, _attributes(magic, codec, timestamp_type), timestamp,
                NULL, 0, <const uint8_t *>held.buf, <int32_t>held.len,
            )
        return made
    finally:
        PyBuffer_Release(&held)
