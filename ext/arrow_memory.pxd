# Growing memory in Arrow's layout, usable without the GIL: arrays of numbers, and columns of bytes.
#
# Each set of columns needs memory of about the same size. Memory freed by its readers is kept for the next set, up to
# 64 MiB in the whole process: new pages from the kernel cost more than all work on the records.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef enum:
    FIRST_ROOM = 4096

# Growing memory; not allocated by Python, since it is filled without the GIL.
ctypedef struct Growing:
    uint8_t *data
    size_t size
    size_t room                 # 0, or FIRST_ROOM times a power of two
    size_t first                # initial room: what the previous set of columns needed; 0: FIRST_ROOM

# A column of bytes in Arrow's layout.
ctypedef struct ByteColumn:
    Growing offsets             # `width` bytes each, one more than there are rows
    Growing data
    Growing validity            # one bit for each row, the lowest first; empty until the first null
    int64_t nulls
    int64_t rows

@cython.final
cdef class Memory:
    cdef uint8_t *_data         # owned, `_room` bytes
    cdef size_t _room
    cdef readonly Py_ssize_t size


# Grow memory from `room` to `larger` bytes and keep the first `used`. NULL: no memory, nothing has changed. `room` and
# `larger` must be valid for Growing.room.
cdef uint8_t *grow_column(uint8_t *at, size_t used, size_t room, size_t larger) noexcept nogil
cdef void free_column(uint8_t *at, size_t room) noexcept nogil

# Return the memory as a Memory object, and leave `memory` empty.
cdef object taken_memory(Growing *memory)

cdef inline void free_memory(Growing *memory) noexcept:
    free_column(memory.data, memory.room)


cdef inline uint8_t *more_memory(Growing *memory, size_t size) noexcept nogil:
    """Return the address of `size` more bytes, counted as used; NULL if there is no memory."""
    cdef size_t room = memory.room
    cdef uint8_t *data
    if size > room - memory.size:
        room = room * 2 if room else (memory.first if memory.first else FIRST_ROOM)
        while size > room - memory.size:
            room *= 2
        data = grow_column(memory.data, memory.size, memory.room, room)
        if data == NULL:
            return NULL
        memory.data = data
        memory.room = room
    memory.size += size
    return memory.data + memory.size - size


cdef inline bint put64(Growing *memory, int64_t value) noexcept nogil:
    cdef uint8_t *at = more_memory(memory, 8)
    if at == NULL:
        return False
    (<int64_t *>at)[0] = value
    return True


cdef inline bint put32(Growing *memory, int32_t value) noexcept nogil:
    cdef uint8_t *at = more_memory(memory, 4)
    if at == NULL:
        return False
    (<int32_t *>at)[0] = value
    return True


cdef inline bint put16(Growing *memory, int16_t value) noexcept nogil:
    cdef uint8_t *at = more_memory(memory, 2)
    if at == NULL:
        return False
    (<int16_t *>at)[0] = value
    return True


cdef inline bint put8(Growing *memory, int8_t value) noexcept nogil:
    cdef uint8_t *at = more_memory(memory, 1)
    if at == NULL:
        return False
    at[0] = <uint8_t>value
    return True


cdef inline bint put_offset(Growing *memory, int width, int64_t value) noexcept nogil:
    return put64(memory, value) if width == 8 else put32(memory, <int32_t>value)


# Set the validity of the next row. While all rows are valid, there is no bitmap.
cdef bint mark_validity(ByteColumn *column, bint valid) noexcept nogil


cdef inline bint put_bytes(ByteColumn *column, int width, const uint8_t *start, int32_t length) noexcept nogil:
    """Append a row; `start` NULL: null."""
    cdef uint8_t *at
    if start == NULL or column.nulls:
        if not column.rows & 7 or not column.nulls:
            if not mark_validity(column, start != NULL):
                return False
        elif start == NULL:     # this row's byte exists already, and its bit is 1
            column.validity.data[column.rows >> 3] &= ~(1 << (column.rows & 7))
            column.nulls += 1
    if column.rows == 0 and not put_offset(&column.offsets, width, 0):
        return False
    if length:
        at = more_memory(&column.data, length)
        if at == NULL:
            return False
        memcpy(at, start, length)
    column.rows += 1
    return put_offset(&column.offsets, width, column.data.size)


# Append a row of text; invalid UTF-8 becomes U+FFFD, as in Kafka's own clients.
cdef bint put_text(ByteColumn *column, const uint8_t *start, int32_t length) noexcept nogil

# Return offsets, data, validity (None: no row is null) and the number of nulls, and leave the column empty.
cdef tuple taken_bytes(ByteColumn *column, int width)

cdef void free_bytes(ByteColumn *column) noexcept
