"""Encodes columns of records as JSON lines, without Python objects for records.

A line is what `kafkapy consume --json` prints (kafkapy.tools.common.record_json.record_line): topic, partition, offset,
timestamp, key, value and headers, in this order and without blanks. Keys and values are strings if they are text (UTF-8
without control characters other than tab and line ends), else {"base64": "..."}, or null.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kafkapy._ext.utf8 cimport utf8_length

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t word)

cdef extern from *:
    int __builtin_ctzll(unsigned long long word) nogil

cdef enum:
    FIELDS = 256                # the most bytes of a line besides prefix, key, value and headers. Copies of 8 bytes
                                # at a time also write up to 8 bytes after the end of a string.
    HEADER = 64                 # the most bytes of a header besides name and value
    FIRST_ROOM = 1048576

cdef uint64_t ONES = 0x0101010101010101
cdef uint64_t TOPS = 0x8080808080808080
cdef const uint8_t *DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


# Rows of bytes; `Held` keeps their memory in place.
ctypedef struct Rows:
    const int32_t *offsets
    const uint8_t *data
    const uint8_t *validity     # NULL: no row is null


ctypedef struct Out:
    uint8_t *data
    size_t size
    size_t room


@cython.final
cdef class Held:
    """Keeps buffers in place while it lives."""

    cdef Py_buffer _buffers[16]
    cdef int _count

    def __cinit__(self) -> None:
        self._count = 0

    def __dealloc__(self) -> None:
        for i in range(self._count):
            PyBuffer_Release(&self._buffers[i])

    cdef const uint8_t *get(self, object memory, int64_t least) except? NULL:
        """Return the address of a buffer; raise ValueError if it has fewer than `least` bytes."""
        PyObject_GetBuffer(memory, &self._buffers[self._count], PyBUF_SIMPLE)
        self._count += 1
        if self._buffers[self._count - 1].len < least:
            raise ValueError("a column is too short for the number of rows")
        return <const uint8_t *>self._buffers[self._count - 1].buf


cdef int _rows(Held held, object column, int64_t count, Rows *rows) except -1:
    rows.offsets = <const int32_t *>held.get(column.offsets, 4 * (count + 1))
    rows.data = held.get(column.data, rows.offsets[count])
    rows.validity = NULL
    if column.validity is not None:
        rows.validity = held.get(column.validity, (count + 7) // 8)
    return 0


cdef inline bint _room(Out *out, size_t size) noexcept nogil:
    cdef size_t room
    cdef uint8_t *data
    if size > out.room - out.size:
        room = out.room * 2 if out.room else FIRST_ROOM
        while size > room - out.size:
            room *= 2
        data = <uint8_t *>PyMem_RawRealloc(out.data, room)
        if data == NULL:
            return False
        out.data = data
        out.room = room
    return True


cdef inline uint8_t *_put(uint8_t *at, const char *text, size_t length) noexcept nogil:
    memcpy(at, text, length)
    return at + length


cdef uint8_t *_put_number(uint8_t *at, int64_t number) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int count = 0
    cdef uint64_t left = <uint64_t>number
    if number < 0:
        at[0] = c"-"
        at += 1
        left = 0 - left
    while True:
        digits[count] = <uint8_t>(c"0" + left % 10)
        count += 1
        left //= 10
        if left == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef inline uint64_t _has_zero(uint64_t word) noexcept nogil:
    return (word - ONES) & ~word & TOPS


cdef inline uint64_t _special(uint64_t word) noexcept nogil:
    """Return 0 if all eight bytes are printable ASCII characters that JSON does not escape. Otherwise the lowest bit is
    set in the first byte that is not (a borrow can set bits only in bytes after that)."""
    return ((word & TOPS) | ((word - 0x20 * ONES) & ~word & TOPS) | _has_zero(word ^ 0x22 * ONES)
            | _has_zero(word ^ 0x5C * ONES) | _has_zero(word ^ 0x7F * ONES))


cdef uint8_t *_put_string(uint8_t *at, const uint8_t *start, const uint8_t *end, bint any_text) noexcept nogil:
    """Write a JSON string; return NULL if the bytes are not text. any_text: control characters are allowed."""
    cdef uint64_t word, special
    cdef uint8_t byte
    cdef int length
    at[0] = c'"'
    at += 1
    while start < end:
        while end - start >= 8:
            memcpy(&word, start, 8)
            memcpy(at, &word, 8)
            special = _special(le64toh(word))
            if special:
                length = __builtin_ctzll(special) >> 3
                at += length
                start += length
                break
            at += 8
            start += 8
        if start == end:
            break
        byte = start[0]
        if byte >= 0x80:
            length = utf8_length(start, end)
            if length == 0:
                return NULL
            memcpy(at, start, length)
            at += length
            start += length
            continue
        start += 1
        if byte == c'"' or byte == c"\\":
            at[0] = c"\\"
            at[1] = byte
            at += 2
        elif byte >= 0x20 and (byte != 0x7F or any_text):
            at[0] = byte
            at += 1
        elif byte == c"\n" or byte == c"\r" or byte == c"\t":
            at[0] = c"\\"
            at[1] = c"n" if byte == c"\n" else c"r" if byte == c"\r" else c"t"
            at += 2
        elif any_text:
            if byte == 8 or byte == 12:
                at = _put(at, b"\\b" if byte == 8 else b"\\f", 2)
            else:
                at = _put(at, b"\\u00", 4)
                at[0] = c"0" + (byte >> 4)
                at[1] = b"0123456789abcdef"[byte & 15]
                at += 2
        else:
            return NULL
    at[0] = c'"'
    return at + 1


cdef uint8_t *_put_base64(uint8_t *at, const uint8_t *start, const uint8_t *end) noexcept nogil:
    cdef uint64_t three
    at = _put(at, b'{"base64":"', 11)
    while end - start >= 3:
        three = <uint64_t>start[0] << 16 | <uint64_t>start[1] << 8 | start[2]
        at[0] = DIGITS[three >> 18]
        at[1] = DIGITS[three >> 12 & 63]
        at[2] = DIGITS[three >> 6 & 63]
        at[3] = DIGITS[three & 63]
        at += 4
        start += 3
    if start < end:
        three = <uint64_t>start[0] << 16 | (<uint64_t>start[1] << 8 if end - start == 2 else 0)
        at[0] = DIGITS[three >> 18]
        at[1] = DIGITS[three >> 12 & 63]
        at[2] = DIGITS[three >> 6 & 63] if end - start == 2 else c"="
        at[3] = c"="
        at += 4
    return _put(at, b'"}', 2)


cdef uint8_t *_put_bytes(uint8_t *at, const Rows *rows, int64_t row) noexcept nogil:
    cdef const uint8_t *start = rows.data + rows.offsets[row]
    cdef const uint8_t *end = rows.data + rows.offsets[row + 1]
    cdef uint8_t *done
    if rows.validity != NULL and not rows.validity[row >> 3] >> (row & 7) & 1:
        return _put(at, b"null", 4)
    done = _put_string(at, start, end, False)
    return _put_base64(at, start, end) if done == NULL else done


# Return the most bytes that a row can take: escapes double a byte (in header names: sixfold), base64 makes 4 of 3.
cdef inline size_t _most(const Rows *rows, int64_t row, int times) noexcept nogil:
    return <size_t>(rows.offsets[row + 1] - rows.offsets[row]) * times


cdef bint _write(Out *out, int64_t count, const uint8_t *prefix, size_t prefix_size, const int64_t *offsets,
                 const int64_t *stamps, const Rows *keys, const Rows *values, const int32_t *lists,
                 const Rows *names, const Rows *contents) noexcept nogil:
    cdef int64_t row
    cdef int32_t i
    cdef uint8_t *at
    for row in range(count):
        if not _room(out, prefix_size + FIELDS + _most(keys, row, 2) + _most(values, row, 2)):
            return False
        at = out.data + out.size
        memcpy(at, prefix, prefix_size)
        at = _put_number(at + prefix_size, offsets[row])
        at = _put(at, b',"timestamp":', 13)
        at = _put_number(at, stamps[row])
        at = _put(at, b',"key":', 7)
        at = _put_bytes(at, keys, row)
        at = _put(at, b',"value":', 9)
        at = _put_bytes(at, values, row)
        at = _put(at, b',"headers":[', 12)
        out.size = at - out.data
        for i in range(lists[row], lists[row + 1]):
            if not _room(out, HEADER + _most(names, i, 6) + _most(contents, i, 2)):
                return False
            at = out.data + out.size
            at = _put(at, b",[" if i > lists[row] else b"[", 2 if i > lists[row] else 1)
            at = _put_string(at, names.data + names.offsets[i], names.data + names.offsets[i + 1], True)
            at[0] = c","
            at = _put_bytes(at + 1, contents, i)
            at[0] = c"]"
            out.size = at + 1 - out.data
        if not _room(out, FIELDS):
            return False
        at = _put(out.data + out.size, b"]}\n", 3)
        out.size = at - out.data
    return True


def json_lines(columns, bytes prefix) -> bytes:
    """Return the lines of Columns with offset, timestamp, key, value and headers, all with offsets of 4 bytes.

    prefix: the start of each line, up to the value of "offset". Header names have to be UTF-8, as those of
    ColumnBuilder are.
    """
    cdef Held held = Held()
    cdef Rows keys, values, names, contents
    cdef Out out
    cdef int64_t count = columns.rows, headers
    cdef bint done
    cdef dict given = columns.columns
    cdef const int64_t *offsets = <const int64_t *>held.get(given["offset"], 8 * count)
    cdef const int64_t *stamps = <const int64_t *>held.get(given["timestamp"], 8 * count)
    cdef const int32_t *lists = <const int32_t *>held.get(given["headers"].offsets, 4 * (count + 1))
    cdef const uint8_t *begin = prefix
    cdef size_t begin_size = len(prefix)
    headers = lists[count]
    _rows(held, given["key"], count, &keys)
    _rows(held, given["value"], count, &values)
    _rows(held, given["headers"].names, headers, &names)
    _rows(held, given["headers"].values, headers, &contents)
    memset(&out, 0, sizeof(Out))
    try:
        with nogil:
            done = _write(&out, count, begin, begin_size, offsets, stamps, &keys, &values, lists, &names, &contents)
        if not done:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *>out.data, out.size)
    finally:
        PyMem_RawFree(out.data)
