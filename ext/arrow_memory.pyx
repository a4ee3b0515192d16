"""Memory of columns in Arrow's layout; see arrow_memory.pxd. Python code gets it as `Memory`."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.string cimport memset

from kafkapy._ext.utf8 cimport utf8_is_valid, utf8_length

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>

    /* Large blocks are mapped: they grow without a copy, and are returned to the kernel when freed. With malloc, the
       columns of many batches, which all grow in turn, would leave holes of several times their size. */
    #define KAFKAPY_LARGE_BITS 17
    #define KAFKAPY_LARGE ((size_t)1 << KAFKAPY_LARGE_BITS)
    #define KAFKAPY_HUGE 4194304

    /* Freed blocks, by size. Several threads may free and allocate: one atomic operation fills or empties a place. */
    #define KAFKAPY_SIZES 10
    #define KAFKAPY_PLACES 8
    #define KAFKAPY_KEPT_MOST ((size_t)64 << 20)
    static void *kafkapy_kept[KAFKAPY_SIZES][KAFKAPY_PLACES];
    static size_t kafkapy_kept_bytes;

    static void **kafkapy_kept_of(size_t room) {
        int size = __builtin_ctzl(room) - KAFKAPY_LARGE_BITS;
        return size < KAFKAPY_SIZES ? kafkapy_kept[size] : 0;
    }

    static void *kafkapy_take_kept(size_t room) {
        void **places = kafkapy_kept_of(room);
        for (int i = 0; places && i < KAFKAPY_PLACES; i++) {
            void *found = __atomic_exchange_n(&places[i], 0, __ATOMIC_ACQ_REL);
            if (found) {
                __atomic_sub_fetch(&kafkapy_kept_bytes, room, __ATOMIC_RELAXED);
                return found;
            }
        }
        return 0;
    }

    static int kafkapy_keep(void *at, size_t room) {
        void **places = kafkapy_kept_of(room);
        if (__atomic_add_fetch(&kafkapy_kept_bytes, room, __ATOMIC_RELAXED) <= KAFKAPY_KEPT_MOST)
            for (int i = 0; places && i < KAFKAPY_PLACES; i++) {
                void *nothing = 0;
                if (__atomic_compare_exchange_n(&places[i], &nothing, at, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                    return 1;
            }
        __atomic_sub_fetch(&kafkapy_kept_bytes, room, __ATOMIC_RELAXED);
        return 0;
    }

    static void kafkapy_free_column(void *at, size_t room) {
        if (room < KAFKAPY_LARGE)
            free(at);
        else if (!kafkapy_keep(at, room))
            munmap(at, room);
    }

    static void *kafkapy_grow_column(void *at, size_t used, size_t room, size_t larger) {
        void *made;
        if (larger < KAFKAPY_LARGE)
            return realloc(at, larger);
        if (room >= KAFKAPY_LARGE)
            made = mremap(at, room, larger, MREMAP_MAYMOVE);
        else if ((made = kafkapy_take_kept(larger)) == 0)
            made = mmap(0, larger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return 0;
        if (larger >= KAFKAPY_HUGE)
            madvise(made, larger, MADV_HUGEPAGE);   /* halves the cost of the first touch; may fail */
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
    MOST_BYTES = 0x7FFFFFFF     # the largest value of an offset of 4 bytes

cdef uint8_t NOTHING = 0


cdef uint8_t *grow_column(uint8_t *at, size_t used, size_t room, size_t larger) noexcept nogil:
    return <uint8_t *>kafkapy_grow_column(at, used, room, larger)


cdef void free_column(uint8_t *at, size_t room) noexcept nogil:
    kafkapy_free_column(at, room)


@cython.final
cdef class Memory:
    """Memory of a column, readable in place through the buffer protocol."""

    def __cinit__(self) -> None:
        self._data = NULL
        self._room = 0

    def __dealloc__(self) -> None:
        free_column(self._data, self._room)

    def __len__(self) -> int:
        return self.size

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, &NOTHING if self._data == NULL else self._data, self.size, 1, flags)


cdef object taken_memory(Growing *memory):
    """Return the memory as a Memory object, and leave `memory` empty."""
    cdef Memory taken = Memory.__new__(Memory)
    taken._data = memory.data
    taken._room = memory.room
    taken.size = memory.size
    memory.first = FIRST_ROOM
    while memory.first < memory.size:
        memory.first *= 2
    memory.data = NULL
    memory.size = memory.room = 0
    return taken


cdef bint mark_validity(ByteColumn *column, bint valid) noexcept nogil:
    """Set the validity of the next row. While all rows are valid, there is no bitmap."""
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
    """Append a row of text; invalid UTF-8 becomes U+FFFD, as in Kafka's own clients."""
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
        return False        # more than 2 GiB of header names that are not UTF-8
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
