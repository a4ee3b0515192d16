# How many bytes each key takes, in bounded memory: what compaction would keep, and which keys are the largest.
#
# A table has 24 bytes for a key: its hash, the bytes of all its records, and those of the last one. When the table is
# full and may not grow, half of the keys are dropped from it, chosen by their hash; and again each time that it is
# full. The rest is a sample of 1 in 2^`halvings` of all keys.
#
# The largest keys are kept separately, with their names, in a heap of TOP entries. They are exact as long as the table
# has all keys. After that they are Space-Saving counters (Metwally, Agrawal, El Abbadi, 2005): a new key replaces the
# smallest key of the heap and starts with its bytes. So a key may have up to `error` bytes less than its entry says,
# but every key with more bytes than the smallest entry is in the heap.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.keymap cimport KeyMap

cdef enum:
    TOP = 1024                  # keys with names
    NAME = 64                   # bytes of a name that are stored
    TOMBSTONE = 0x80000000
    AHEAD = 32                  # records that wait while their slots are prefetched

ctypedef struct KeySlot:
    uint64_t hash               # the high bits choose the slot, the low bits the sample
    uint64_t bytes              # of all records; 0: this slot is free
    uint32_t latest             # bytes of the last record, with TOMBSTONE set if its value is null
    uint32_t records

ctypedef struct TopKey:
    uint64_t hash
    uint64_t bytes
    uint64_t error              # up to this many bytes may belong to other keys
    uint64_t records            # certain: records from before the key entered the heap with an error are not counted
    int32_t place               # index in the heap
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
    cdef KeyMap _hasher             # for its secret hash: clients cannot choose keys that collide
    cdef KeySlot *_slots
    cdef uint64_t _size             # number of slots
    cdef uint64_t _most             # largest number of slots
    cdef readonly int64_t sampled   # keys in the table
    cdef readonly int halvings
    cdef TopKey *_top
    cdef int32_t *_heap             # indexes in _top, the smallest key first
    cdef int32_t _tops
    cdef IntMap _by_hash            # hash -> index in _top

    cdef Waiting _waiting[AHEAD]    # a ring buffer
    cdef uint64_t _came             # records ever put into the ring
    cdef uint64_t _went             # records ever taken out of the ring

    # Count one record of a key, with a `size` of at least 1; return False if there is no memory. The record may stay in
    # the ring: the key's memory must stay valid until `flush`.
    cdef bint add(self, const uint8_t *key, int32_t length, int64_t size, bint tombstone) noexcept nogil
    # Count the records in the ring; return False if there is no memory.
    cdef bint flush(self) noexcept nogil

    cdef bint _take(self, const Waiting *record) noexcept nogil
    cdef KeySlot *_find(self, uint64_t hash) noexcept nogil
    cdef bint _grow(self) noexcept nogil
    cdef void _halve(self) noexcept nogil
    cdef void _remove(self, uint64_t at) noexcept nogil
    cdef bint _count(self, const Waiting *record, const KeySlot *slot) noexcept nogil
    cdef void _down(self, int32_t place) noexcept nogil
    cdef void _up(self, int32_t place) noexcept nogil
