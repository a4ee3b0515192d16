# The committed offsets of one partition of __consumer_offsets in plain memory, without Python objects: 64 bytes for
# each offset, plus its share of the index and of the names.
#
# If two commits are for the same partition, the one whose record is later in the log (`order`) counts. The order is
# stored because the offsets of a transaction are applied only when its marker is read. Until then they are staged: they
# are entries of the same table, in the list of the producer's open transaction instead of the group's list. Source:
# Kafka's GroupMetadata (offsets, pendingTransactionalOffsetCommits) and GroupMetadataManager.doLoadGroupsAndOffsets.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.keymap cimport KeyMap
from kafkapy._ext.name_pool cimport NamePool
from kafkapy._ext.offset_commit cimport OffsetKeyView, OffsetValueView

# The rarely used parts of a commit, in one allocation with the metadata text at its end.
ctypedef struct Extra:
    int64_t expire_timestamp    # -1: none
    int32_t metadata_length
    uint8_t metadata[1]

ctypedef struct Entry:
    int64_t offset
    int64_t commit_timestamp    # milliseconds
    int64_t order               # larger for later records of the log
    Extra *extra                # NULL: no metadata and no expire timestamp
    int32_t group
    int32_t topic
    int32_t partition
    int32_t leader_epoch        # -1: none
    int32_t transaction         # the transaction that staged it; -1: it is committed
    int32_t next                # in the list of its group or transaction, -1 at the end; if unused, the next free entry
    int32_t previous            # -1 at the head
    int32_t used                # 0: the entry is free

ctypedef struct OpenTransaction:
    int64_t producer_id
    int32_t first               # first entry of its list; -1: none
    int32_t next_free           # the next free transaction, -1: none; valid only if this one is free
    bint used


@cython.final
cdef class OffsetTable:
    cdef Entry *_entries
    cdef int32_t _room              # capacity of `_entries`
    cdef int32_t _used              # entries that were ever in use
    cdef int32_t _free              # the first free entry among them; -1: none
    cdef int32_t *_slots            # hash table (open addressing, linear probing): index of an entry + 1; 0: free
    cdef uint64_t _mask             # number of slots - 1; at most three quarters of the slots are in use
    cdef int64_t _filled            # entries in use
    cdef int64_t _extra_bytes       # total size of all `extra`
    cdef readonly int64_t offsets   # number of committed offsets
    cdef NamePool _groups           # `first` and `count` of a name: the list of the group's committed offsets
    cdef NamePool _topics
    cdef KeyMap _hasher             # hashes names
    cdef IntMap _producers          # producer id -> index in _transactions
    cdef OpenTransaction *_transactions
    cdef int32_t _transactions_room
    cdef int32_t _transactions_used
    cdef int32_t _transactions_free
    cdef int64_t _order             # the last order assigned

    # Apply a record of the log; producer_id: its open transaction stages the offset, -1: none. False: no memory.
    cdef bint put(
        self, const OffsetKeyView *key, const OffsetValueView *value, int64_t order, int64_t producer_id
    ) noexcept nogil
    cdef void drop(self, const OffsetKeyView *key, int64_t producer_id) noexcept nogil
    # Apply a transaction marker. False: no memory.
    cdef bint end(self, int64_t producer_id, bint committed) noexcept nogil

    cdef int32_t _find(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil
    cdef uint64_t _slot(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil
    cdef bint _grow(self) noexcept nogil
    cdef int32_t _take_entry(self) noexcept nogil
    cdef bint _upsert(
        self, int32_t group, int32_t topic, int32_t partition, int32_t transaction, const OffsetValueView *value,
        int64_t order
    ) noexcept nogil
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
