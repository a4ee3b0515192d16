# Finds the aborted and the open transactions of a partition, from its batches alone.

cimport cython
from libc.stdint cimport int64_t

from kafkapy._ext.int_map cimport IntMap
from kafkapy._ext.stored_records cimport Stored, StoredRecords

ctypedef struct Ended:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset         # of the abort marker


@cython.final
cdef class TransactionScan:
    cdef StoredRecords _walk
    cdef IntMap _open           # producer id -> first offset of its transaction
    cdef Ended *_aborted
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room
    cdef bint _in_marker        # True if the record of a control batch comes next
    cdef bint _no_memory

    cdef Stored _run(self) noexcept nogil
    cdef bint _marker(self) noexcept nogil
