# Names in plain memory, each stored once and identified by a number: groups and topics of committed offsets.
#
# A name stays as long as it has uses: `names_take` adds a use, `names_release` removes one. The caller passes the hash,
# which needs a secret (ext/keymap), since clients choose the names.

from libc.stdint cimport int32_t, uint8_t, uint64_t

ctypedef struct Name:
    uint8_t *text               # owned
    uint64_t hash
    int32_t length
    int32_t uses                # 0: the number is free
    int32_t first               # for the owner of the pool: head of a list, -1 at first; if free: the next free number
    int32_t count               # for the owner of the pool, 0 at first

ctypedef struct NamePool:
    Name *names                 # by number
    int32_t room                # capacity of `names`
    int32_t used                # numbers that were ever assigned
    int32_t free                # a free number among them; -1: none
    int32_t count               # names in use
    int32_t *slots              # hash table (open addressing, linear probing): number + 1; 0: free
    uint64_t mask               # number of slots - 1; at most half of the slots are in use

# Begin and end a pool.
cdef void names_begin(NamePool *pool) noexcept nogil
cdef void names_end(NamePool *pool) noexcept nogil

# Return the number of the name; -1 if the name is not in use.
cdef int32_t names_find(const NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil

# Add a use of the name, which may be new, and return its number; -1 if there is no memory.
cdef int32_t names_take(NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil

# Add a use of a name that is in use; remove a use, and the name with its last use.
cdef void names_keep(NamePool *pool, int32_t number) noexcept nogil
cdef void names_release(NamePool *pool, int32_t number) noexcept nogil

# Return the bytes of memory of the pool.
cdef uint64_t names_memory(const NamePool *pool) noexcept nogil
