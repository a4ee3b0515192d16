# What the cleaner knows of transactions as it goes through a log from front to back: which batches belong to an
# aborted one, and which markers have nothing left that needs them.
#
# All of it lies below the last stable offset: every transaction is decided, and the transaction indexes name the
# aborted ones ahead of their batches. Source: Kafka's CleanedTransactionMetadata.

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

ctypedef struct Standing:
    int64_t producer_id
    int32_t aborted             # which entry of `_entries` is open, -1: none
    bint seen                   # whether a batch of that transaction is still in the log
    bint committed              # whether a batch of a transaction that will be committed was seen
    bint used                   # whether this place of the table is taken


@cython.final
cdef class DecidedTransactions:
    cdef list _entries              # the aborted transactions as they were given, by first offset
    cdef int64_t *_first_offsets    # of each
    cdef int64_t *_producer_ids     # of each
    cdef Py_ssize_t _count
    cdef Py_ssize_t _next           # the first one that begins behind what was read
    cdef Standing *_table           # by producer id: open addressing, a power of two places
    cdef Py_ssize_t _places
    cdef Py_ssize_t _taken
    cdef int32_t *_retained         # entries whose marker stays, in the order of the markers; room for all
    cdef Py_ssize_t _retained_count
    cdef readonly bint out_of_memory    # an answer since may be wrong: the caller has to give up

    # A batch that is no control batch was read: whether it belongs to an aborted transaction, so that it may go.
    cdef bint batch_read(self, int64_t producer_id, bint transactional, int64_t last_offset) noexcept nogil

    # A control batch was read (`kind`: type of its record, EMPTY_MARKER if there is none): whether nothing is left
    # that needs it.
    cdef bint marker_read(self, int64_t producer_id, int16_t kind, int64_t last_offset) noexcept nogil

    cdef void _begun_up_to(self, int64_t offset) noexcept nogil
    cdef Standing *_standing(self, int64_t producer_id) noexcept nogil
    cdef bint _grow(self) noexcept nogil

cdef enum:
    ABORT_MARKER = 0
    COMMIT_MARKER = 1
    EMPTY_MARKER = -1           # a cleaning before has taken the record out
