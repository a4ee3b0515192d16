# How many bytes each key takes, in bounded memory: what compaction would keep, and which keys are the largest.
#
# A table has 24 bytes for a key: its hash, the bytes of all its records and those of the last one. When the table may
# not grow any more, half of the keys are dropped from it, chosen by their hash, and so again each time that it is
# full: what is left is a sample of 1 in 2^`halvings`, which says about all keys what it says of its own.
#
# The largest keys are kept with their names apart from that, in a heap of TOP entries. They are exact as long as the
# table has all keys; later they go on as Space-Saving counters (Metwally, Agrawal, El Abbadi, 2005): a key that comes
# takes the place of the smallest one and starts from its bytes, so that it may have up to `error` bytes less than it
# says, and no key with more bytes than the smallest is missing.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.keymap cimport KeyMap

cdef enum:
    TOP = 1024                  # keys with names
    NAME = 64                   # bytes of a name that are kept
    TOMBSTONE = 0x80000000
    AHEAD = 32                  # records that wait until their slot has come from memory

ctypedef struct KeySlot:
    uint64_t hash               # where it belongs follows from the high bits, whether it is sampled from the low ones
    uint64_t bytes              # of all records; 0: free
    uint32_t latest             # bytes of the last record, with TOMBSTONE where that has no value
    uint32_t records

ctypedef struct TopKey:
    uint64_t hash
    uint64_t bytes
    uint64_t error              # so many of the bytes may be those of other keys
    uint64_t records            # certain ones: those before a key came with an error are not among them
    int32_t place               # in the heap
    int32_t length              # of the whole key
    uint8_t name[NAME]

ctypedef struct Waiting:
    uint64_t hash
    const uint8_t *key
    int64_t size
    int32_t length
    bint tombstone


@cython.final
cdef class KeyTotals:
    cdef KeyMap _hasher             # its keyed hash: nobody can choose keys that collide
    cdef KeySlot *_slots
    cdef uint64_t _size             # of the table
    cdef uint64_t _most             # size that it may have
    cdef readonly int64_t sampled   # keys in the table
    cdef readonly int halvings
    cdef TopKey *_top
    cdef int32_t *_heap             # places in _top, the smallest first
    cdef int32_t _tops
    cdef IntMap _by_hash            # hash -> place in _top

    cdef Waiting _waiting[AHEAD]    # a ring
    cdef uint64_t _came             # records that ever went into it
    cdef uint64_t _went             # records that ever came out of it

    # One more record of a key, with a `size` of at least 1; False without memory. It may wait for a while: the key's
    # memory must stay until `flush`.
    cdef bint add(self, const uint8_t *key, int32_t length, int64_t size, bint tombstone) noexcept nogil
    # Take in what waits; False without memory.
    cdef bint flush(self) noexcept nogil

    cdef bint _take(self, const Waiting *record) noexcept nogil
    cdef KeySlot *_find(self, uint64_t hash) noexcept nogil
    cdef bint _grow(self) noexcept nogil
    cdef void _halve(self) noexcept nogil
    cdef void _remove(self, uint64_t at) noexcept nogil
    cdef bint _count(self, const Waiting *record, const KeySlot *slot) noexcept nogil
    cdef void _down(self, int32_t place) noexcept nogil
    cdef void _up(self, int32_t place) noexcept nogil
