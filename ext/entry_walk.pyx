"""Where the whole entries of a piece of a log end, and whether all are of a format that a client knows.

No Python object is made per entry: a message set of format 0 or 1 may have a message every thirty bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kafkapy._ext.cursor cimport load32


cdef enum:
    RELEASE_FROM = 65536        # bytes: in steps of thirty bytes it takes about ten microseconds

cdef Stop walk(const uint8_t *data, int64_t size, int highest_magic) noexcept nogil:
    cdef Stop stop
    cdef int64_t left
    stop.position = 0
    stop.size = 0
    stop.above = False
    while True:
        left = size - stop.position
        if left <= ENTRY_AT_MAGIC:
            stop.size = 0
            return stop
        stop.size = <int64_t><int>load32(data + stop.position + ENTRY_AT_LENGTH)
        if stop.size < ENTRY_LEAST:
            stop.size = -1
            return stop
        stop.size += ENTRY_OVERHEAD
        if stop.size > left:
            return stop
        if <signed char>data[stop.position + ENTRY_AT_MAGIC] > highest_magic:
            stop.above = True
            return stop
        stop.position += stop.size


def whole_entries(buffer, int highest_magic=127) -> tuple[int, int, bool]:
    """Walk from the buffer's beginning: (position, size, above).

    position: behind the last of the entries that are whole and of a format up to `highest_magic`. size: of the entry
    there, 0 if too little of it is there to tell, -1 if its length is not that of one. above: whether it is whole,
    and of a newer format.
    """
    cdef Py_buffer held
    cdef Stop stop
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if held.len < RELEASE_FROM:
            stop = walk(<const uint8_t *>held.buf, held.len, highest_magic)
        else:
            with nogil:
                stop = walk(<const uint8_t *>held.buf, held.len, highest_magic)
    finally:
        PyBuffer_Release(&held)
    return stop.position, stop.size, stop.above
