# Which batches a consumer with isolation level read_committed does not get: those of aborted transactions.
#
# The rule is that of Kafka's CompletedFetch: from its first offset on an aborted transaction drops all transactional
# batches of its producer, up to the producer's abort marker. Batches have to be shown in the order of their offsets.

cimport cython
from libc.stdint cimport int64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.stored_records cimport StoredBatch

ctypedef struct Aborted:
    int64_t first_offset
    int64_t producer_id


@cython.final
cdef class AbortedTransactions:
    cdef Aborted *_known        # in the order of their first offsets
    cdef Py_ssize_t _count
    cdef Py_ssize_t _next       # the first one that has not begun yet
    cdef IntMap _active         # producers that are within an aborted transaction

    # Whether the batch is one of an aborted transaction.
    cdef bint drops(self, const StoredBatch *batch) noexcept nogil
    # An abort marker of the producer was read.
    cdef void ended(self, int64_t producer_id) noexcept nogil

    cdef readonly bint failed   # there was no memory for a producer
