# The committed offsets of one partition of __consumer_offsets, in plain memory: 64 bytes an offset beside its share of
# the index and of the names, and without a Python object for any of them.
#
# Which of two commits of one partition counts is decided by where their records are in the log (`order`), because the
# offsets of a transaction are decided when its marker comes. Until then they are staged: entries of the same table,
# owned by the producer's open transaction in the place of the group. Source: Kafka's GroupMetadata (offsets,
# pendingTransactionalOffsetCommits) and GroupMetadataManager.doLoadGroupsAndOffsets.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.keymap cimport KeyMap
from kafkapy._ext.name_pool cimport NamePool
from kafkapy._ext.offset_commit cimport OffsetKeyView, OffsetValueView

# What few commits have; one piece of memory with the text behind it.
ctypedef struct Extra:
    int64_t expire_timestamp    # -1: none
    int32_t metadata_length
    uint8_t metadata[1]

ctypedef struct Entry:
    int64_t offset
    int64_t commit_timestamp    # milliseconds
    int64_t order               # of its record in the log
    Extra *extra                # NULL: no metadata, and it does not expire by itself
    int32_t group
    int32_t topic
    int32_t partition
    int32_t leader_epoch        # -1: none
    int32_t transaction         # that it is staged in, -1: it is committed
    int32_t next                # in the list of its group or of its transaction, -1 at the end; the next free entry
    int32_t previous            # -1 at the head
    int32_t used                # 0: the entry is free

ctypedef struct OpenTransaction:
    int64_t producer_id
    int32_t first               # of its entries, -1: none
    int32_t next_free           # -1: none; only where the place is free
    bint used


@cython.final
cdef class OffsetTable:
    cdef Entry *_entries
    cdef int32_t _room              # entries that there is memory for
    cdef int32_t _used              # entries that were ever in use
    cdef int32_t _free              # the first of those that are free again, -1: none
    cdef int32_t *_slots            # open addressing with linear probing: entry + 1, 0 where there is none
    cdef uint64_t _mask             # number of slots - 1; at most three quarters are taken
    cdef int64_t _filled            # entries in use
    cdef int64_t _extra_bytes       # in all `extra`
    cdef readonly int64_t offsets   # committed ones
    cdef NamePool _groups           # `first` and `count`: the list of a group's committed offsets
    cdef NamePool _topics
    cdef KeyMap _hasher             # for names
    cdef IntMap _producers          # producer id -> place in _transactions
    cdef OpenTransaction *_transactions
    cdef int32_t _transactions_room
    cdef int32_t _transactions_used
    cdef int32_t _transactions_free
    cdef int64_t _order             # the last one that was given

    # A record of the log, of the producer's open transaction or (-1) of none. False: no memory.
    cdef bint put(self, const OffsetKeyView *key, const OffsetValueView *value, int64_t order, int64_t producer_id) noexcept nogil
    cdef void drop(self, const OffsetKeyView *key, int64_t producer_id) noexcept nogil
    # A transaction's marker. False: no memory.
    cdef bint end(self, int64_t producer_id, bint committed) noexcept nogil

    cdef int32_t _find(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil
    cdef uint64_t _slot(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil
    cdef bint _grow(self) noexcept nogil
    cdef int32_t _take_entry(self) noexcept nogil
    cdef bint _upsert(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction, const OffsetValueView *value, int64_t order) noexcept nogil
    cdef bint _fill(self, Entry *entry, const OffsetValueView *value) noexcept nogil
    cdef void _link(self, int32_t at) noexcept nogil
    cdef void _unlink(self, int32_t at) noexcept nogil
    cdef void _remove(self, int32_t at) noexcept nogil
    cdef int32_t _open(self, int64_t producer_id) noexcept nogil
    cdef uint64_t _hash(self, const uint8_t *text, Py_ssize_t length) noexcept nogil
    cdef int32_t _group(self, str group) except -2
    cdef int32_t _topic(self, str topic) except -2
    cdef bint _is_of(self, int32_t at, int32_t group) noexcept nogil
    cdef int32_t _committed(self, str group, str topic, int32_t partition) except -2
    cdef object _commit(self, const Entry *entry)
