# A map from int64 (producer ids, key hashes) to non-negative numbers (such as indexes of arrays), in plain memory and
# usable without the GIL.
#
# Open addressing with linear probing. A removal moves the following entries, so there are no marks for removed entries.
# The hash is seeded when the module is loaded, so that clients cannot choose producer ids that collide.

from libc.stdint cimport int32_t, int64_t, uint64_t

ctypedef struct IntSlot:
    int64_t key
    int64_t value               # -1: this slot is free

ctypedef struct IntMap:
    IntSlot *slots              # NULL: the map never had an entry
    uint64_t mask               # number of slots - 1; the number of slots is a power of two
    uint64_t count              # keys in the map; at most half of the slots

# To begin a map, set all of it to zero (memset). To end it, call int_map_free.

# Return the value of `key`, -1 if the key is not in the map.
cdef int64_t int_map_get(const IntMap *map, int64_t key) noexcept nogil

# Set the value (0 or more) of a key; return False if there is no memory.
cdef bint int_map_put(IntMap *map, int64_t key, int64_t value) noexcept nogil

# Remove a key; return False if it was not in the map.
cdef bint int_map_remove(IntMap *map, int64_t key) noexcept nogil

# Remove all keys and keep the memory.
cdef void int_map_clear(IntMap *map) noexcept nogil

cdef void int_map_free(IntMap *map) noexcept nogil
