# The state of transactions while the cleaner reads a log in order: which batches belong to aborted transactions, and
# which markers are no longer needed.
#
# The cleaner reads only below the last stable offset: every transaction there is decided, and the transaction indexes
# name the aborted ones before their batches are read. Source: Kafka's CleanedTransactionMetadata.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

# The state of one producer.
ctypedef struct Standing:
    int64_t producer_id
    int32_t aborted             # index in `_entries` of its aborted transaction that has begun and not ended; -1: none
    bint seen                   # True if a batch of that transaction is still in the log
    bint committed              # True if a batch of a transaction that will be committed was read
    bint used                   # False: this place of the table is free


@cython.final
cdef class DecidedTransactions:
    cdef list _entries              # the aborted transactions as passed in, ordered by first offset
    cdef int64_t *_first_offsets    # of each entry
    cdef int64_t *_producer_ids     # of each entry
    cdef Py_ssize_t _count
    cdef Py_ssize_t _next           # index of the first transaction that has not begun yet
    cdef Standing *_table           # hash table by producer id (open addressing); its size is a power of two
    cdef Py_ssize_t _places
    cdef Py_ssize_t _taken
    cdef int32_t *_retained         # indexes of entries whose marker is kept, in the order of the markers
    cdef Py_ssize_t _retained_count
    cdef readonly bint out_of_memory    # if True, results may be wrong and the caller has to give up

    # Pass over a data batch; return True if it belongs to an aborted transaction and may be removed.
    cdef bint batch_read(self, int64_t producer_id, bint transactional, int64_t last_offset) noexcept nogil

    # Pass over a control batch (`kind`: type of its record, EMPTY_MARKER if there is none); return True if no remaining
    # record needs it.
    cdef bint marker_read(self, int64_t producer_id, int16_t kind, int64_t last_offset) noexcept nogil

    cdef void _begun_up_to(self, int64_t offset) noexcept nogil
    cdef Standing *_standing(self, int64_t producer_id) noexcept nogil
    cdef bint _grow(self) noexcept nogil

cdef enum:
    ABORT_MARKER = 0
    COMMIT_MARKER = 1
    EMPTY_MARKER = -1           # an earlier cleaning removed the record
