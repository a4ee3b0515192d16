# A map from int64 to a number from 0 on, in plain memory and usable without the interpreter: producer ids or key
# hashes, and the place of what belongs to them.
#
# Open addressing with linear probing; a removal moves what follows, so there are no marks of removed entries. The
# hash is seeded when the module is loaded: nobody who chooses producer ids can choose collisions.

from libc.stdint cimport int32_t, int64_t, uint64_t

ctypedef struct IntSlot:
    int64_t key
    int64_t value               # -1: the slot is free

ctypedef struct IntMap:
    IntSlot *slots              # NULL: nothing was ever put
    uint64_t mask               # number of slots - 1; the number is a power of two
    uint64_t count              # keys in the map; at most half of the slots

# A map is begun by setting all of it to zero (memset), and ended by int_map_free.

# The value of `key`, -1 if it is not there.
cdef int64_t int_map_get(const IntMap *map, int64_t key) noexcept nogil

# Set the value (from 0 on) of a key; False without memory.
cdef bint int_map_put(IntMap *map, int64_t key, int64_t value) noexcept nogil

# Whether the key was there.
cdef bint int_map_remove(IntMap *map, int64_t key) noexcept nogil

# All keys go, the memory stays.
cdef void int_map_clear(IntMap *map) noexcept nogil

cdef void int_map_free(IntMap *map) noexcept nogil
