# Recognizes the batches that a consumer with isolation level read_committed does not get: those of aborted
# transactions.
#
# The rule is that of Kafka's CompletedFetch: from its first offset on, an aborted transaction drops all transactional
# batches of its producer, up to the producer's abort marker. Batches have to be passed in the order of their offsets.

cimport cython
from libc.stdint cimport int64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.stored_records cimport StoredBatch

ctypedef struct Aborted:
    int64_t first_offset
    int64_t producer_id


@cython.final
cdef class AbortedTransactions:
    cdef Aborted *_known        # ordered by first offset
    cdef Py_ssize_t _count
    cdef Py_ssize_t _next       # the first transaction that has not begun yet
    cdef IntMap _active         # the producers whose aborted transaction has begun and not ended

    # Return True if the batch belongs to an aborted transaction.
    cdef bint drops(self, const StoredBatch *batch) noexcept nogil
    # End the producer's aborted transaction: its abort marker was read.
    cdef void ended(self, int64_t producer_id) noexcept nogil

    cdef readonly bint failed   # True if there was no memory for a producer; results may then be wrong
