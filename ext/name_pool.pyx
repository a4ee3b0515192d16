"""Names, each stored once and identified by a number; see name_pool.pxd. Python tests use it as `Names`."""

cimport cython
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kafkapy._ext.keymap cimport KeyMap

cdef enum:
    FIRST = 16                  # initial number of names, and half of the initial number of slots


cdef void names_begin(NamePool *pool) noexcept nogil:
    memset(pool, 0, sizeof(NamePool))
    pool.free = -1


cdef void names_end(NamePool *pool) noexcept nogil:
    cdef int32_t i
    for i in range(pool.used):
        if pool.names[i].uses:
            free(pool.names[i].text)
    free(pool.names)
    free(pool.slots)
    names_begin(pool)


# Return the slot of the name, or the free slot where it would go.
cdef inline uint64_t _slot(const NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil:
    cdef uint64_t at = hash & pool.mask
    cdef const Name *name
    while pool.slots[at]:
        name = &pool.names[pool.slots[at] - 1]
        if name.hash == hash and name.length == length and memcmp(name.text, text, length) == 0:
            break
        at = (at + 1) & pool.mask
    return at


cdef int32_t names_find(const NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil:
    if pool.slots == NULL:
        return -1
    return pool.slots[_slot(pool, text, length, hash)] - 1


cdef bint _grow_slots(NamePool *pool) noexcept nogil:
    cdef uint64_t size = (pool.mask + 1) * 2 if pool.slots != NULL else 2 * FIRST, at
    cdef int32_t *slots = <int32_t *>calloc(size, sizeof(int32_t))
    cdef int32_t i
    if slots == NULL:
        return False
    for i in range(pool.used):
        if pool.names[i].uses:
            at = pool.names[i].hash & (size - 1)
            while slots[at]:
                at = (at + 1) & (size - 1)
            slots[at] = i + 1
    free(pool.slots)
    pool.slots = slots
    pool.mask = size - 1
    return True


# Return a free number; -1 if there is no memory.
cdef int32_t _number(NamePool *pool) noexcept nogil:
    cdef int32_t number = pool.free, room
    cdef Name *names
    if number >= 0:
        pool.free = pool.names[number].first
        return number
    if pool.used == pool.room:
        room = pool.room + pool.room // 2 if pool.room else FIRST
        names = <Name *>realloc(pool.names, room * sizeof(Name))
        if names == NULL:
            return -1
        pool.names = names
        pool.room = room
    number = pool.used
    pool.names[number].uses = 0
    pool.used += 1
    return number


cdef void _give_back(NamePool *pool, int32_t number) noexcept nogil:
    pool.names[number].uses = 0
    pool.names[number].first = pool.free
    pool.free = number


cdef int32_t names_take(NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil:
    cdef int32_t number = names_find(pool, text, length, hash)
    cdef Name *name
    if number >= 0:
        pool.names[number].uses += 1
        return number
    if pool.slots == NULL or <uint64_t>(pool.count + 1) * 2 > pool.mask + 1:
        if not _grow_slots(pool):
            return -1
    number = _number(pool)
    if number < 0:
        return -1
    name = &pool.names[number]
    name.text = <uint8_t *>malloc(length if length else 1)
    if name.text == NULL:
        _give_back(pool, number)
        return -1
    memcpy(name.text, text, length)
    name.length = length
    name.hash = hash
    name.uses = 1
    name.first = -1
    name.count = 0
    pool.slots[_slot(pool, text, length, hash)] = number + 1
    pool.count += 1
    return number


cdef void names_keep(NamePool *pool, int32_t number) noexcept nogil:
    pool.names[number].uses += 1


cdef void names_release(NamePool *pool, int32_t number) noexcept nogil:
    cdef Name *name = &pool.names[number]
    cdef uint64_t hole, at, home
    name.uses -= 1
    if name.uses:
        return
    hole = _slot(pool, name.text, name.length, name.hash)
    # Close the hole, since a search ends at the first free slot: move back each following entry of the run, unless the
    # hole is before the slot where the search for that entry begins.
    at = hole
    while True:
        at = (at + 1) & pool.mask
        if pool.slots[at] == 0:
            break
        home = pool.names[pool.slots[at] - 1].hash & pool.mask
        if ((at - home) & pool.mask) >= ((at - hole) & pool.mask):
            pool.slots[hole] = pool.slots[at]
            hole = at
    pool.slots[hole] = 0
    pool.count -= 1
    free(name.text)
    _give_back(pool, number)


cdef uint64_t names_memory(const NamePool *pool) noexcept nogil:
    cdef uint64_t size = <uint64_t>pool.room * sizeof(Name)
    cdef int32_t i
    if pool.slots != NULL:
        size += (pool.mask + 1) * sizeof(int32_t)
    for i in range(pool.used):
        if pool.names[i].uses:
            size += pool.names[i].length
    return size


@cython.final
cdef class Names:
    """The pool as a Python object. Used only by tests. `find` returns a name's number, -1 for an unknown name."""

    cdef NamePool pool
    cdef KeyMap hasher

    def __cinit__(self) -> None:
        names_begin(&self.pool)
        self.hasher = KeyMap(1024)

    def __dealloc__(self) -> None:
        names_end(&self.pool)

    def __len__(self) -> int:
        return self.pool.count

    cdef uint64_t _hash(self, bytes name) noexcept:
        return self.hasher.hash_of(<const uint8_t *><const char *>name, len(name)).low

    def find(self, bytes name) -> int:
        return names_find(&self.pool, <const uint8_t *><const char *>name, len(name), self._hash(name))

    def take(self, bytes name) -> int:
        cdef int32_t number
        number = names_take(&self.pool, <const uint8_t *><const char *>name, len(name), self._hash(name))
        if number < 0:
            raise MemoryError
        return number

    def release(self, bytes name) -> None:
        cdef int32_t number = self.find(name)
        if number < 0:
            raise KeyError(name)
        names_release(&self.pool, number)
