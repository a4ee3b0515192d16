# Names in plain memory, each once, with a number that stands for it: groups and topics of committed offsets.
#
# A name lives as long as somebody uses it: `names_take` counts one more use, `names_release` one less. The hash comes
# from the caller, who draws a secret for it (ext/keymap): names are chosen by clients.

from libc.stdint cimport int32_t, uint8_t, uint64_t

ctypedef struct Name:
    uint8_t *text               # owned
    uint64_t hash
    int32_t length
    int32_t uses                # 0: the number is free
    int32_t first               # for the owner: the head of a list, -1 at the beginning; next free number when free
    int32_t count               # for the owner, 0 at the beginning

ctypedef struct NamePool:
    Name *names                 # by number
    int32_t room                # numbers that `names` has room for
    int32_t used                # numbers that were ever given out
    int32_t free                # a number that was given back, -1: none
    int32_t count               # names that are used
    int32_t *slots              # open addressing with linear probing: number + 1, 0 where there is none
    uint64_t mask               # number of slots - 1; at most half of them are taken

# A pool is begun by `names_begin` and ended by `names_end`.
cdef void names_begin(NamePool *pool) noexcept nogil
cdef void names_end(NamePool *pool) noexcept nogil

# The number of the name; -1 if nobody uses it.
cdef int32_t names_find(const NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil

# The same with one more use, whether it is known or not; -1 without memory.
cdef int32_t names_take(NamePool *pool, const uint8_t *text, int32_t length, uint64_t hash) noexcept nogil

# One more use of a name that is used; one less, and the name goes with the last one.
cdef void names_keep(NamePool *pool, int32_t number) noexcept nogil
cdef void names_release(NamePool *pool, int32_t number) noexcept nogil

# Bytes of memory that all of it takes.
cdef uint64_t names_memory(const NamePool *pool) noexcept nogil
