# A map from keys to numbers that stores no keys: 24 bytes an entry, in one flat piece of memory.
#
# It stores the key's SipHash-2-4 with 128 bits, under a secret chosen for each map. Two different keys practically
# never have the same hash: among a billion keys, the chance is 2^-69, and without the secret a client cannot choose
# keys to increase it. (Kafka's map uses MD5, for which anyone can make colliding keys.) SipHash is also faster: 23 ns
# for a key of 16 bytes and 33 for one of 64; OpenSSL's MD5 takes 139 and 223.
#
# Not thread-safe: a map has one owner.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

ctypedef struct Entry:
    uint64_t high               # the hash; `high` chooses the slot
    uint64_t low
    uint64_t stored             # the number + 1; 0: this slot is free

ctypedef struct KeyHash:
    uint64_t high
    uint64_t low

# The results of `put`.
cdef enum Put:
    PUT_NEW = 0                 # the key was added
    PUT_REPLACED = 1            # the key was in the map; its number was replaced
    PUT_FULL = 2                # the map is full and does not have the key; nothing has changed


@cython.final
cdef class KeyMap:
    cdef Entry *_table              # `_slots` entries, from mmap: pages that were never used take no memory
    cdef uint64_t _slots            # entries in the table; grows up to `_most`
    cdef uint64_t _most             # entries that fit into the allowed memory
    cdef uint64_t _grow_at          # number of keys at which the table has to grow
    cdef uint64_t _secret[2]
    cdef double _load_factor
    cdef readonly int64_t size      # keys in the map
    cdef readonly int64_t capacity  # the most keys: what fits into the memory, times the load factor

    # Store the number of a key; `value` is at least 0. The key's memory is not used after the call.
    cdef Put put(self, const uint8_t *key, Py_ssize_t length, int64_t value) noexcept nogil

    # Return the number of the key; -1 if the key is not in the map.
    cdef int64_t get(self, const uint8_t *key, Py_ssize_t length) noexcept nogil

    # The same in steps, for callers that look up many keys: hash all, prefetch their slots, then look them up.
    cdef KeyHash hash_of(self, const uint8_t *key, Py_ssize_t length) noexcept nogil
    cdef void prefetch(self, const KeyHash *hashed) noexcept nogil
    cdef Put put_hashed(self, const KeyHash *hashed, int64_t value) noexcept nogil
    cdef int64_t get_hashed(self, const KeyHash *hashed) noexcept nogil

    cdef void _set_limit(self) noexcept nogil
    cdef bint _grow(self) noexcept nogil
