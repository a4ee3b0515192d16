# Memory in Arrow's layout that grows without the interpreter: numbers one behind the other, and columns of bytes.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>

    /* Large memory comes from the kernel itself: it grows without a copy and goes back at once. From malloc the
       columns of one batch after the other, all growing side by side, would leave holes of several times their size. */
    #define KAFKAPY_LARGE 131072
    #define KAFKAPY_HUGE 4194304

    static void kafkapy_free_column(void *at, size_t room) {
        if (room < KAFKAPY_LARGE)
            free(at);
        else
            munmap(at, room);
    }

    /* `used` bytes are kept; NULL without memory, and then all is as it was. */
    static void *kafkapy_grow_column(void *at, size_t used, size_t room, size_t larger) {
        void *made;
        if (larger < KAFKAPY_LARGE)
            return realloc(at, larger);
        if (room >= KAFKAPY_LARGE)
            made = mremap(at, room, larger, MREMAP_MAYMOVE);
        else
            made = mmap(0, larger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return 0;
        if (larger >= KAFKAPY_HUGE)
            madvise(made, larger, MADV_HUGEPAGE);   /* halves the cost of the first touch; refused is fine */
        if (room < KAFKAPY_LARGE) {
            if (used)
                memcpy(made, at, used);
            free(at);
        }
        return made;
    }
    """
    void kafkapy_free_column(void *at, size_t room) nogil
    void *kafkapy_grow_column(void *at, size_t used, size_t room, size_t larger) nogil

cdef enum:
    FIRST_ROOM = 4096

# Memory that grows; plain, since it is filled without the interpreter's lock.
ctypedef struct Growing:
    uint8_t *data
    size_t size
    size_t room

# A column of bytes in Arrow's layout.
ctypedef struct ByteColumn:
    Growing offsets             # `width` bytes each, one more than there are rows
    Growing data
    Growing validity            # a bit a row, the lowest first; empty until the first null
    int64_t nulls
    int64_t rows

@cython.final
cdef class Memory:
    cdef uint8_t *_data         # owned, of `_room` bytes
    cdef size_t _room
    cdef readonly Py_ssize_t size


# The memory as an object; nothing is left in `memory`.
cdef object taken_memory(Growing *memory)

cdef inline void free_memory(Growing *memory) noexcept:
    kafkapy_free_column(memory.data, memory.room)


cdef inline uint8_t *more_memory(Growing *memory, size_t size) noexcept nogil:
    """Room for `size` bytes more, counted as used; NULL without memory."""
    cdef size_t room = memory.room
    cdef uint8_t *data
    if size > room - memory.size:
        room = room * 2 if room else FIRST_ROOM
        while size > room - memory.size:
            room *= 2
        data = <uint8_t *>kafkapy_grow_column(memory.data, memory.size, memory.room, room)
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


# The validity of the next row. There is no bitmap as long as all rows are valid.
cdef bint mark_validity(ByteColumn *column, bint valid) noexcept nogil


cdef inline bint put_bytes(ByteColumn *column, int width, const uint8_t *start, int32_t length) noexcept nogil:
    """One row more; `start` NULL: null."""
    cdef uint8_t *at
    if (start == NULL or column.nulls) and not mark_validity(column, start != NULL):
        return False
    if column.rows == 0 and not put_offset(&column.offsets, width, 0):
        return False
    if length:
        at = more_memory(&column.data, length)
        if at == NULL:
            return False
        memcpy(at, start, length)
    column.rows += 1
    return put_offset(&column.offsets, width, column.data.size)


# One row of text more; bytes that are no UTF-8 become U+FFFD, as in Kafka's own clients.
cdef bint put_text(ByteColumn *column, const uint8_t *start, int32_t length) noexcept nogil

# Offsets, data, validity (None: no row is null) and the number of nulls; the column is empty then.
cdef tuple taken_bytes(ByteColumn *column, int width)

cdef void free_bytes(ByteColumn *column) noexcept
