"""The bounds-checked Reader and the growing Writer that all decoding and encoding goes through.

Both are used from Cython, through the inlined get_* and put_* methods of cursor.pxd; Python code only creates a Writer
and reads, fills or clears it. Reading past the end raises ShortBuffer, a malformed varint raises BadVarint (both are
ValueErrors); the Reader then stays at its position.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc

from kafkapy._ext.varint cimport VARINT_SHORT

from kafkapy._ext.varint import BadVarint


class ShortBuffer(ValueError):
    """A read of `wanted` bytes at `position`, where only `there` bytes are left."""

    def __init__(self, wanted, there, position):
        super().__init__(
            f"a length of {wanted} bytes at byte {position} is negative" if wanted < 0
            else f"{wanted} bytes wanted at byte {position}, but only {there} are there"
        )
        self.wanted = wanted
        self.there = there
        self.position = position


@cython.final
cdef class Reader:
    """Reads a bytes-like object from byte `position` to its end."""

    def __cinit__(self, buffer, Py_ssize_t position=0):
        self._holding = False
        PyObject_GetBuffer(buffer, &self._held, PyBUF_SIMPLE)
        self._holding = True
        self._source = buffer
        self._view = None
        if position < 0 or position > self._held.len:
            raise ShortBuffer(position, self._held.len, 0)
        self.start = <const uint8_t *>self._held.buf
        self.at = self.start + position
        self.end = self.start + self._held.len

    def __dealloc__(self):
        if self._holding:
            PyBuffer_Release(&self._held)

    cdef int short_read(self, Py_ssize_t wanted) except -1:
        raise ShortBuffer(wanted, self.end - self.at, self.at - self.start)

    cdef int bad_varint(self, int taken) except -1:
        if taken == VARINT_SHORT:
            raise ShortBuffer(self.end - self.at + 1, self.end - self.at, self.at - self.start)
        raise BadVarint(f"the varint at byte {self.at - self.start} is longer than {VARINT_MAX} bytes")

    cdef object slice_view(self, Py_ssize_t begin, Py_ssize_t end):
        if self._view is None:
            view = memoryview(self._source)
            self._view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        return self._view[begin:end]


@cython.final
cdef class Writer:
    """A growing buffer with an initial capacity of `room` bytes. A Writer is a read-only bytes-like object."""

    def __cinit__(self, Py_ssize_t room=64):
        self.data = NULL
        self.size = 0
        self.room = 0
        self._exported = 0
        self.grow(max(room, 16))

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t limit = (<size_t>-1) >> 2
        cdef Py_ssize_t room
        cdef uint8_t *data
        if n < 0:
            raise ValueError(f"a length of {n} bytes is negative")
        if self._exported:
            raise BufferError("a Writer cannot grow while a view of it is held")
        if n > limit - self.size:
            raise MemoryError(f"{n} bytes after {self.size} exceed the capacity of a Writer")
        room = max(self.size + n, self.room * 2)
        data = <uint8_t *>PyMem_RawRealloc(self.data, room)
        if data == NULL:
            raise MemoryError(f"no memory for {room} bytes")
        self.data = data
        self.room = room
        return 0

    cdef int put_buffer(self, object buffer) except -1:
        cdef Py_buffer held
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            self.put_raw(held.buf, held.len)
        finally:
            PyBuffer_Release(&held)
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)
        self._exported += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._exported -= 1

    def __len__(self) -> int:
        return self.size

    def getvalue(self) -> bytes:
        """Return the written bytes as a copy."""
        return PyBytes_FromStringAndSize(<char *>self.data, self.size)

    def clear(self) -> None:
        """Discard the written bytes, and keep the memory for the next use."""
        self.size = 0

    def write_bytes(self, source) -> None:
        """Append the bytes of a bytes-like object."""
        self.put_buffer(source)
