"""The bounds-checked Reader and the growing Writer that all decoding and encoding goes through.

Big-endian numbers, varints, byte strings. C code uses the inlined get_* and put_* methods of cursor.pxd; the
read_* and write_* methods here are the same for Python. Reading past the end raises ShortBuffer, a malformed
varint raises BadVarint (both are ValueError), and the Reader stays where it was.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.string cimport memcpy

from kafkapy._ext.varint cimport VARINT_SHORT

from kafkapy._ext.varint import BadVarint


class ShortBuffer(ValueError):
    """More bytes were asked for than are there: `wanted`, `there` (both in bytes) and `position`."""

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
    """Reads any bytes-like object from `position` up to (not including) `end`, by default all of it."""

    def __cinit__(self, buffer, Py_ssize_t position=0, end=None):
        cdef Py_ssize_t last
        self._holding = False
        PyObject_GetBuffer(buffer, &self._held, PyBUF_SIMPLE)
        self._holding = True
        self._source = buffer
        self._view = None
        last = self._held.len if end is None else end
        if last < 0 or last > self._held.len:
            raise ShortBuffer(last, self._held.len, 0)
        if position < 0 or position > last:
            raise ShortBuffer(position, last, 0)
        self.start = <const uint8_t *>self._held.buf
        self.at = self.start + position
        self.end = self.start + last

    def __dealloc__(self):
        if self._holding:
            PyBuffer_Release(&self._held)

    cdef int short_read(self, Py_ssize_t wanted) except -1:
        raise ShortBuffer(wanted, self.end - self.at, self.at - self.start)

    cdef int bad_varint(self, int taken, int longest) except -1:
        if taken == VARINT_SHORT:
            raise ShortBuffer(self.end - self.at + 1, self.end - self.at, self.at - self.start)
        raise BadVarint(f"a varint at byte {self.at - self.start} goes on after {longest} bytes")

    cdef object slice_view(self, Py_ssize_t begin, Py_ssize_t end):
        if self._view is None:
            view = memoryview(self._source)
            self._view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        return self._view[begin:end]

    @property
    def position(self) -> int:
        """The next byte to read, counted from the start of the buffer."""
        return self.at - self.start

    @property
    def remaining(self) -> int:
        """How many bytes can still be read."""
        return self.end - self.at

    def skip(self, Py_ssize_t n) -> None:
        """Go n bytes on."""
        self.advance(n)

    def read_bytes(self, Py_ssize_t n) -> bytes:
        """Copy the next n bytes."""
        return self.get_bytes(n)

    def read_view(self, Py_ssize_t n) -> memoryview:
        """Give the next n bytes as a slice of the original buffer, writable if that is."""
        return self.get_view(n)

    def read_int8(self) -> int:
        """Read one byte, signed."""
        return self.get_int8()

    def read_uint8(self) -> int:
        """Read one byte, unsigned."""
        return self.get_uint8()

    def read_int16(self) -> int:
        """Read two bytes, signed."""
        return self.get_int16()

    def read_uint16(self) -> int:
        """Read two bytes, unsigned."""
        return self.get_uint16()

    def read_int32(self) -> int:
        """Read four bytes, signed."""
        return self.get_int32()

    def read_uint32(self) -> int:
        """Read four bytes, unsigned."""
        return self.get_uint32()

    def read_int64(self) -> int:
        """Read eight bytes, signed."""
        return self.get_int64()

    def read_float64(self) -> float:
        """Read eight bytes, IEEE 754."""
        return self.get_float64()

    def read_uvarint(self) -> int:
        """Read an unsigned 32-bit varint."""
        return self.get_uvarint()

    def read_uvarlong(self) -> int:
        """Read an unsigned 64-bit varint."""
        return self.get_uvarlong()

    def read_varint(self) -> int:
        """Read a zig-zag 32-bit varint."""
        return self.get_varint()

    def read_varlong(self) -> int:
        """Read a zig-zag 64-bit varint."""
        return self.get_varlong()


@cython.final
cdef class Writer:
    """A growing buffer; `room` is how many bytes to begin with. It is itself a (read-only) bytes-like object."""

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
            raise MemoryError(f"{n} bytes after {self.size} are more than a Writer can hold")
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

    cdef int check_patch(self, Py_ssize_t position, Py_ssize_t n) except -1:
        if position < 0 or position > self.size or n > self.size - position:
            raise ShortBuffer(n, max(self.size - max(position, 0), 0), position)
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)
        self._exported += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._exported -= 1

    def __len__(self) -> int:
        return self.size

    def getvalue(self) -> bytes:
        """Copy what was written."""
        return PyBytes_FromStringAndSize(<char *>self.data, self.size)

    def clear(self) -> None:
        """Forget what was written and keep the memory for the next use."""
        self.size = 0

    def write_bytes(self, source) -> None:
        """Write any bytes-like object as it is."""
        self.put_buffer(source)

    def write_int8(self, int8_t value) -> None:
        """Write one byte, signed."""
        self.put_int8(value)

    def write_int16(self, int16_t value) -> None:
        """Write two bytes, signed."""
        self.put_int16(value)

    def write_uint16(self, uint16_t value) -> None:
        """Write two bytes, unsigned."""
        self.put_uint16(value)

    def write_int32(self, int32_t value) -> None:
        """Write four bytes, signed."""
        self.put_int32(value)

    def write_uint32(self, uint32_t value) -> None:
        """Write four bytes, unsigned."""
        self.put_uint32(value)

    def write_int64(self, int64_t value) -> None:
        """Write eight bytes, signed."""
        self.put_int64(value)

    def write_float64(self, double value) -> None:
        """Write eight bytes, IEEE 754."""
        self.put_float64(value)

    def write_uvarint(self, uint32_t value) -> None:
        """Write an unsigned 32-bit varint."""
        self.put_uvarint(value)

    def write_uvarlong(self, uint64_t value) -> None:
        """Write an unsigned 64-bit varint."""
        self.put_uvarlong(value)

    def write_varint(self, int32_t value) -> None:
        """Write a zig-zag 32-bit varint."""
        self.put_varint(value)

    def write_varlong(self, int64_t value) -> None:
        """Write a zig-zag 64-bit varint."""
        self.put_varlong(value)

    def patch_int16(self, Py_ssize_t position, int16_t value) -> None:
        """Overwrite two bytes that were written before."""
        self.check_patch(position, 2)
        store16(self.data + position, <uint16_t>value)

    def patch_int32(self, Py_ssize_t position, int32_t value) -> None:
        """Overwrite four bytes that were written before."""
        self.check_patch(position, 4)
        store32(self.data + position, <uint32_t>value)

    def patch_uint32(self, Py_ssize_t position, uint32_t value) -> None:
        """Overwrite four bytes that were written before."""
        self.check_patch(position, 4)
        store32(self.data + position, value)

    def patch_int64(self, Py_ssize_t position, int64_t value) -> None:
        """Overwrite eight bytes that were written before."""
        self.check_patch(position, 8)
        store64(self.data + position, <uint64_t>value)
