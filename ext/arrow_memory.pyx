"""Memory of columns in Arrow's layout; see arrow_memory.pxd. Python sees of it what it can read: `Memory`."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.string cimport memset

from kafkapy._ext.utf8 cimport utf8_is_valid, utf8_length

cdef enum:
    MOST_BYTES = 0x7FFFFFFF     # what an offset of 4 bytes can count

cdef uint8_t NOTHING = 0


@cython.final
cdef class Memory:
    """Memory of a column: any consumer of buffers can read it in place."""

    def __cinit__(self) -> None:
        self._data = NULL
        self._room = 0

    def __dealloc__(self) -> None:
        kafkapy_free_column(self._data, self._room)

    def __len__(self) -> int:
        return self.size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, &NOTHING if self._data == NULL else self._data, self.size, 1, flags)


cdef object taken_memory(Growing *memory):
    """The memory as an object; nothing is left in `memory`."""
    cdef Memory taken = Memory.__new__(Memory)
    taken._data = memory.data
    taken._room = memory.room
    taken.size = memory.size
    memset(memory, 0, sizeof(Growing))
    return taken


cdef bint mark_validity(ByteColumn *column, bint valid) noexcept nogil:
    """The validity of the next row. There is no bitmap as long as all are valid."""
    cdef size_t wanted = <size_t>(column.rows >> 3) + 1
    cdef size_t before = column.validity.size
    cdef uint8_t *at
    if wanted > before:
        at = more_memory(&column.validity, wanted - before)
        if at == NULL:
            return False
        memset(at, 0xFF, wanted - before)
    if not valid:
        column.validity.data[column.rows >> 3] &= ~(1 << (column.rows & 7))
        column.nulls += 1
    return True


cdef bint put_text(ByteColumn *column, const uint8_t *start, int32_t length) noexcept nogil:
    """One row of text more; bytes that are no UTF-8 become U+FFFD, as in Kafka's own clients."""
    cdef const uint8_t *end = start + length
    cdef uint8_t *at
    cdef int taken
    if utf8_is_valid(start, end):
        return put_bytes(column, 4, start, length)
    if column.rows == 0 and not put32(&column.offsets, 0):
        return False
    while start < end:
        taken = utf8_length(start, end)
        at = more_memory(&column.data, taken if taken else 3)
        if at == NULL:
            return False
        memcpy(at, start if taken else <const uint8_t *>b"\xef\xbf\xbd", taken if taken else 3)
        start += taken if taken else 1
    if column.data.size > MOST_BYTES:
        return False        # a gigabyte of header names that are no text
    column.rows += 1
    return put32(&column.offsets, <int32_t>column.data.size)


cdef void free_bytes(ByteColumn *column) noexcept:
    free_memory(&column.offsets)
    free_memory(&column.data)
    free_memory(&column.validity)


cdef tuple taken_bytes(ByteColumn *column, int width):
    cdef int64_t nulls = column.nulls
    cdef uint8_t *at
    if column.rows == 0:
        at = more_memory(&column.offsets, width)
        if at == NULL:
            raise MemoryError
        memset(at, 0, width)
    column.rows = column.nulls = 0
    offsets = taken_memory(&column.offsets)
    data = taken_memory(&column.data)
    validity = taken_memory(&column.validity)
    return offsets, data, validity if nulls else None, nulls
