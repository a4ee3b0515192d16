"""A map from int64 to non-negative numbers in plain memory; see int_map.pxd. Python tests use it as `IntTable`."""

import os

cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    FEWEST_SLOTS = 16

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


# Return the slot where the search for a key begins: the finalizer of MurmurHash3 (Appleby), which mixes every bit of
# the key into the low bits.
cdef inline uint64_t _home(const IntMap *map, int64_t key) noexcept nogil:
    cdef uint64_t mixed = <uint64_t>key ^ SEED
    mixed = (mixed ^ mixed >> 33) * <uint64_t>0xFF51AFD7ED558CCD
    mixed = (mixed ^ mixed >> 33) * <uint64_t>0xC4CEB9FE1A85EC53
    return (mixed ^ mixed >> 33) & map.mask


# Return the slot of the key, or the free slot where it would go. At least half of the slots are free.
cdef inline IntSlot *_slot(const IntMap *map, int64_t key) noexcept nogil:
    cdef uint64_t at = _home(map, key)
    while map.slots[at].value >= 0 and map.slots[at].key != key:
        at = (at + 1) & map.mask
    return &map.slots[at]


cdef bint _resize(IntMap *map, uint64_t slots) noexcept nogil:
    cdef IntMap larger
    cdef uint64_t i
    larger.slots = <IntSlot *>calloc(slots, sizeof(IntSlot))
    if larger.slots == NULL:
        return False
    larger.mask = slots - 1
    larger.count = map.count
    for i in range(slots):
        larger.slots[i].value = -1
    if map.slots != NULL:
        for i in range(map.mask + 1):
            if map.slots[i].value >= 0:
                _slot(&larger, map.slots[i].key)[0] = map.slots[i]
        free(map.slots)
    map[0] = larger
    return True


cdef int64_t int_map_get(const IntMap *map, int64_t key) noexcept nogil:
    if map.slots == NULL:
        return -1
    return _slot(map, key).value


cdef bint int_map_put(IntMap *map, int64_t key, int64_t value) noexcept nogil:
    cdef IntSlot *slot
    if map.slots == NULL and not _resize(map, FEWEST_SLOTS):
        return False
    slot = _slot(map, key)
    if slot.value < 0:
        if (map.count + 1) * 2 > map.mask + 1:
            if not _resize(map, (map.mask + 1) * 2):
                return False
            slot = _slot(map, key)
        map.count += 1
        slot.key = key
    slot.value = value
    return True


cdef bint int_map_remove(IntMap *map, int64_t key) noexcept nogil:
    cdef uint64_t hole, at, home
    if map.slots == NULL:
        return False
    hole = _slot(map, key) - map.slots
    if map.slots[hole].value < 0:
        return False
    map.count -= 1
    # Close the hole, since a search ends at the first free slot: move back each following entry of the run, unless the
    # hole is before the slot where the search for that entry begins.
    at = hole
    while True:
        at = (at + 1) & map.mask
        if map.slots[at].value < 0:
            break
        home = _home(map, map.slots[at].key)
        if ((at - home) & map.mask) >= ((at - hole) & map.mask):
            map.slots[hole] = map.slots[at]
            hole = at
    map.slots[hole].value = -1
    return True


cdef void int_map_clear(IntMap *map) noexcept nogil:
    cdef uint64_t i
    if map.slots != NULL:
        for i in range(map.mask + 1):
            map.slots[i].value = -1
    map.count = 0


cdef void int_map_free(IntMap *map) noexcept nogil:
    free(map.slots)
    memset(map, 0, sizeof(IntMap))


@cython.final
cdef class IntTable:
    """The map as a Python object. Used only by tests. `get` returns -1 for an unknown key."""

    cdef IntMap map

    def __cinit__(self) -> None:
        memset(&self.map, 0, sizeof(IntMap))

    def __dealloc__(self) -> None:
        int_map_free(&self.map)

    def __len__(self) -> int:
        return self.map.count

    def get(self, int64_t key) -> int:
        return int_map_get(&self.map, key)

    def put(self, int64_t key, int64_t value) -> None:
        if value < 0:
            raise ValueError(f"{value} is negative")
        if not int_map_put(&self.map, key, value):
            raise MemoryError

    def remove(self, int64_t key) -> bool:
        return int_map_remove(&self.map, key)

    def clear(self) -> None:
        int_map_clear(&self.map)
